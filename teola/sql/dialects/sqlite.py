"""SQLite: what a statement may call and name.

Left out: functions that load code, touch files or tell about the connection (load_extension,
readfile, writefile, edit, changes, last_insert_rowid, sqlite_version, fts3_tokenizer, ...).
"""

from __future__ import annotations

import re
from typing import Final

from teola.sql.dialects.dialect import COMMON, SqlDialect, names

SQLITE: Final = SqlDialect(
    name="sqlite",
    functions=COMMON
    | names(
        """
        char date datetime glob group_concat hex if ifnull iif instr json json_array
        json_array_length json_extract json_group_array json_group_object json_insert
        json_object json_patch json_pretty json_quote json_remove json_replace json_set
        json_type json_valid jsonb_array jsonb_extract jsonb_group_array jsonb_group_object
        jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set julianday
        like likelihood likely log2 median percentile percentile_cont percentile_disc quote
        random soundex strftime time timediff total typeof unhex unicode unistr unixepoch
        unlikely
        """
    ),
    row_functions=names("json_each json_tree"),
    series=frozenset(),
    widths={"zeroblob": (0, 0), "randomblob": (0, 0)},
    formats={"printf": 0, "format": 0},
    grammar=names("cast"),
    nodes=names("Glob Match RegexpLike RawString ByteString"),
    session=frozenset(),
    system=re.compile(r"(sqlite_|pragma_|dbstat$|bytecode$|tables_used$)"),
    free_columns=names("rowid oid _rowid_"),
    main="main",
    texts_in_quotes=True,
)
