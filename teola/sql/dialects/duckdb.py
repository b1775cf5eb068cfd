"""DuckDB: what a statement may call and name.

Left out: functions that read files (read_csv, glob, ...), settings and variables, run SQL that
stands in a text (query, query_table, json_execute_serialized_sql), or tell about the database
(duckdb_settings, pragma_...).
"""

from __future__ import annotations

import re
from typing import Final

from teola.sql.dialects.dialect import COMMON, SqlDialect, names

DUCKDB: Final = SqlDialect(
    name="duckdb",
    functions=COMMON
    | names(
        """
        add age any_value approx_count_distinct approx_quantile approx_top_k arbitrary
        arg_max arg_min argmax argmin array_agg array_append array_cat array_concat
        array_contains array_cosine_distance array_cosine_similarity array_cross_product
        array_distance array_distinct array_dot_product array_extract array_filter array_has
        array_has_all array_has_any array_inner_product array_length array_position
        array_prepend array_reverse array_slice array_sort array_to_string array_transform
        array_unique array_value ascii asinh bin bit_and bit_count bit_length bit_or
        bit_position bit_xor bitstring_agg bool_and bool_or btrim cardinality cbrt century
        char_length chr columns contains corr cot count_if count_star countif covar_pop
        covar_samp current_date current_localtimestamp current_time current_timestamp
        damerau_levenshtein date date_add date_diff date_part date_sub date_trunc datediff
        datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear decade decode
        divide editdist3 element_at encode ends_with entropy epoch epoch_ms epoch_ns
        epoch_us equi_width_bins era even factorial favg fill filter first flatten
        format_bytes from_base64 from_hex from_json from_json_strict fsum gcd
        gen_random_uuid geomean geometric_mean get_current_time get_current_timestamp
        greatest greatest_common_divisor group_concat grouping grouping_id hamming hash hex
        histogram hour hours ifnull ilike_escape instr isfinite isinf isnan isodow
        isoyear jaccard jaro_similarity jaro_winkler_similarity json_array json_array_length
        json_contains json_exists json_extract json_extract_path json_extract_path_text
        json_extract_string json_group_array json_group_object json_group_structure
        json_keys json_merge_patch json_object json_quote json_structure json_transform
        json_transform_strict json_type json_valid json_value julian kahan_sum kurtosis
        kurtosis_pop last last_day lcase lcm least least_common_multiple left left_grapheme
        len length_grapheme levenshtein lgamma like_escape list list_aggr list_aggregate
        list_any_value list_append list_apply list_avg list_cat list_concat list_contains
        list_cosine_distance list_cosine_similarity list_count list_distance list_distinct
        list_dot_product list_element list_extract list_filter list_first list_grade_up
        list_has list_has_all list_has_any list_histogram list_indexof list_inner_product
        list_intersect list_last list_max list_median list_min list_mode list_pack
        list_position list_prepend list_product list_reduce list_reverse list_reverse_sort
        list_select list_slice list_sort list_string_agg list_sum list_transform list_unique
        list_value list_where list_zip listagg localtime localtimestamp log2 mad make_date
        make_time make_timestamp make_timestamptz map map_concat map_contains map_entries
        map_extract map_from_entries map_keys map_values max_by md5 md5_number mean median
        microsecond millennium millisecond min_by minute mismatches mode month monthname
        multiply nanosecond nextafter nfc_normalize not_ilike_escape not_like_escape now ord
        parse_dirname parse_filename parse_path percentile_cont percentile_disc position
        prefix product quantile quantile_cont quantile_disc quarter random regexp_escape
        regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
        regexp_split_to_array regr_avgx regr_avgy regr_count regr_intercept regr_r2
        regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile reverse right
        right_grapheme round_even roundbankers row row_to_json second sem sha1 sha256
        signbit skewness split split_part starts_with stddev stddev_pop stddev_samp
        str_split str_split_regex strftime string_split string_split_regex string_to_array
        strip_accents strlen strpos strptime struct_extract struct_insert struct_pack
        subtract suffix sumkahan time_bucket timezone timezone_hour timezone_minute
        to_base64 to_binary to_centuries to_days to_decades to_hex to_hours to_json
        to_microseconds to_milliseconds to_minutes to_months to_quarters to_seconds
        to_timestamp to_weeks to_years today transaction_timestamp translate try
        try_strptime typeof ucase unbin unhex unicode union_extract union_tag union_value
        url_decode url_encode uuid var_pop var_samp variance week weekday weekofyear xor
        year yearweek
        """
    ),
    row_functions=names("unnest json_each json_tree regexp_split_to_table"),
    series=names("generate_series range"),
    widths={
        "lpad": (1, 0),
        "rpad": (1, 0),
        "repeat": (1, 0),
        "bar": (3, 0),
        "list_resize": (1, 0),
        "array_resize": (1, 0),
    },
    formats={"format": 0, "printf": 0},
    grammar=names("cast try_cast extract overlay position substring trim"),
    nodes=names(
        """
        Abs Array ArrayContainedBy ArrayContainsAll ArrayOverlaps AtTimeZone BitwiseXor
        Bracket ByteString ColumnDef Columns Comprehension Cube Dot Extract ForIn Glob
        GroupingSets HavingMax ILike IgnoreNulls IntDiv Interval IntervalSpan Kwarg Lambda
        Lateral Localtime Localtimestamp Map Overlay Pivot PivotAlias PivotAny Pow
        PropertyEQ Qualify RegexpFullMatch RegexpILike RegexpLike RespectNulls Rollup
        SimilarTo Slice StrPosition Struct Substring TableSample ToMap Trim TryCast Unnest
        UnpivotColumns WithinGroup
        """
    ),
    session=names("session_user current_user current_catalog current_role user"),
    system=re.compile(
        r"(pg_|duckdb_|sqlite_|pragma_|information_schema$|temp$|system$|storage_info$)"
    ),
    free_columns=names("rowid"),
    main="main",
    methods=True,
    files_as_tables=True,
)
