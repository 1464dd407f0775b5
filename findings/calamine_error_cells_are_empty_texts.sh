#!/bin/sh
# python-calamine 0.9.1. A cell of Excel with an error (#N/A) cannot be told from one without a value.
# Expected: a value for errors, or None, or an exception: the Rust library below has a kind of cell for errors.
# Seen: to_python() gives '' for a cell with #N/A, for a cell with an empty text and for one that is not there. Whole numbers
# are floats, so that 9007199254740993 comes as 9007199254740992.0.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check python-calamine==0.9.1
"$place/venv/bin/python" - "$place/book.xlsx" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import sys
import zipfile
from importlib.metadata import version

from python_calamine import CalamineWorkbook

assert version("python-calamine") == "0.9.1"
types, package = (f"http://schemas.openxmlformats.org/{each}" for each in ("package/2006/content-types", "package/2006"))
sheets, office = (f"http://schemas.openxmlformats.org/{each}/2006" for each in ("spreadsheetml", "officeDocument"))
kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
part = '<Override PartName="/xl/{}" ContentType="{}.{}+xml"/>'
cells = '<c r="A1" t="e"><v>#N/A</v></c><c r="C1" t="str"><v></v></c><c r="D1"><v>9007199254740993</v></c>'
with zipfile.ZipFile(sys.argv[1], "w") as book:
    for name, text in {
        "[Content_Types].xml": f'<Types xmlns="{types}"><Default Extension="rels" ContentType="application/vnd.openxmlformats-'
        f'package.relationships+xml"/>{part.format("workbook.xml", kind, "sheet.main")}'
        f'{part.format("worksheets/sheet1.xml", kind, "worksheet")}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{sheets}/main" xmlns:r="{office}/relationships"><sheets><sheet name="a" '
        'sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{sheets}/main"><sheetData><row r="1">{cells}</row></sheetData></worksheet>',
    }.items():
        book.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + text)
rows = CalamineWorkbook.from_path(sys.argv[1]).get_sheet_by_index(0).to_python()
assert rows == [["", "", "", 9007199254740992.0]], rows
print("python-calamine 0.9.1: #N/A, no cell and an empty text are all", repr(rows[0][0]))
END
