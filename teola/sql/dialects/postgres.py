"""PostgreSQL: what a statement may call and name.

Left out: functions that read files or settings, run SQL that stands in a text (query_to_xml,
ts_stat, crosstab, dblink), take locks or numbers of a sequence, look up the database's own tables
(to_regclass, has_table_privilege, col_description), or tell about the session.
"""

from __future__ import annotations

import re
from typing import Final

from teola.sql.dialects.dialect import COMMON, SqlDialect, names

POSTGRES: Final = SqlDialect(
    name="postgres",
    functions=COMMON
    | names(
        """
        age any_value array array_agg array_append array_cat array_dims array_length
        array_lower array_ndims array_position array_positions array_prepend array_remove
        array_replace array_sample array_shuffle array_to_json array_to_string array_upper
        ascii bit_and bit_length bit_or bit_xor bool_and bool_or broadcast btrim cardinality
        cbrt char_length character_length chr clock_timestamp convert_from convert_to corr
        cot covar_pop covar_samp current_date current_time current_timestamp date date_add
        date_bin date_part date_subtract date_trunc datemultirange daterange decode div
        encode erf erfc every extract factorial family gcd gen_random_uuid get_bit get_byte
        greatest grouping host hostmask initcap int4multirange int4range int8multirange
        int8range isempty isfinite json_agg json_array json_array_length json_arrayagg
        json_build_array json_build_object json_exists json_extract_path
        json_extract_path_text json_object json_object_agg json_objectagg json_query
        json_scalar json_strip_nulls json_typeof json_value jsonb_agg jsonb_array_length
        jsonb_build_array jsonb_build_object jsonb_exists jsonb_extract_path
        jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_path_exists
        jsonb_path_exists_tz jsonb_path_match jsonb_path_query_array jsonb_path_query_first
        jsonb_pretty jsonb_set jsonb_strip_nulls jsonb_typeof justify_days justify_hours
        justify_interval lcm least left localtime localtimestamp lower_inc lower_inf
        make_date make_interval make_time make_timestamp make_timestamptz masklen md5
        min_scale mode netmask network normalize now num_nonnulls num_nulls nummultirange
        numnode numrange parse_ident percentile_cont percentile_disc pg_typeof
        phraseto_tsquery plainto_tsquery position quote_ident quote_literal quote_nullable
        random random_normal range_agg range_merge regexp_count regexp_instr regexp_like
        regexp_match regexp_replace regexp_split_to_array regexp_substr regr_avgx regr_avgy
        regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reverse
        right row row_to_json scale setweight sha224 sha256 sha384 sha512 similarity some
        split_part starts_with statement_timestamp stddev stddev_pop stddev_samp
        string_to_array strip strpos timezone to_ascii to_char to_date to_hex to_json
        to_jsonb to_number to_timestamp to_tsquery to_tsvector transaction_timestamp
        translate trim_array trim_scale trunc ts_headline ts_rank ts_rank_cd tsmultirange
        tsrange tstzmultirange tstzrange tsvector_to_array unaccent upper_inc upper_inf
        var_pop var_samp variance websearch_to_tsquery width_bucket
        """
    ),
    row_functions=names(
        """
        generate_subscripts json_array_elements json_array_elements_text json_each
        json_each_text json_object_keys json_to_record json_to_recordset
        jsonb_array_elements jsonb_array_elements_text jsonb_each jsonb_each_text
        jsonb_object_keys jsonb_path_query jsonb_to_record jsonb_to_recordset regexp_matches
        regexp_split_to_table string_to_table unnest
        """
    ),
    series=names("generate_series"),
    widths={"lpad": (1, 0), "rpad": (1, 0), "repeat": (1, 0)},
    formats={"format": 0},
    grammar=names("cast extract overlay position substring trim"),
    nodes=names(
        """
        Adjacent Array ArrayContainedBy ArrayContainsAll ArrayOverlaps AtIndex AtTimeZone
        BitString BitwiseXor Bracket ByteString ColumnDef Cube Distance Dot ExtendsLeft
        ExtendsRight Extract GroupingSets ILike Interval IntervalSpan JSON JSONBContains
        JSONBContainsAllTopKeys JSONBContainsAnyTopKeys JSONBContainsTopKey
        JSONBDeleteAtPath JSONBExtract JSONBExtractScalar JSONBPathExists JSONExtractQuote
        Kwarg Lateral Localtime Localtimestamp MatchAgainst NullSafeEQ Overlaps Overlay Pow
        RawString RecursiveWithSearch RegexpILike RegexpLike Rollup SimilarTo Slice
        StrPosition Substring TableSample Trim UnicodeString Unnest WithinGroup
        """
    ),
    session=names("current_role system_user user session_user current_user current_catalog"),
    system=re.compile(r"(pg_|information_schema$)"),
    hidden_columns=names("ctid xmin xmax cmin cmax tableoid"),
    quoted_folds=False,
    fields_call=True,
    types=names(
        """
        box cidr circle citext halfvec jsonpath line lseg ltree macaddr macaddr8 path polygon
        tsquery tsvector varbit
        """
    ),
)
