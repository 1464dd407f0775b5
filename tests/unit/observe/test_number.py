from __future__ import annotations

import pytest

from widen.observe.number import NO_FACTS, Facts, number_kind

ROWS = [
    ("0", "long", Facts(0, 0)),
    ("-0", "long", Facts(0, 0)),
    ("7", "long", Facts(1, 0)),
    ("-2147483648", "long", Facts(10, 0)),
    ("2147483648", "long", Facts(10, 0, fits_int32=False)),
    ("9007199254740992", "long", Facts(16, 0, fits_int32=False)),
    ("9007199254740993", "long", Facts(16, 0, fits_int32=False, exact_double=False)),
    ("9223372036854775807", "long", Facts(19, 0, fits_int32=False, exact_double=False)),
    ("-9223372036854775808", "long", Facts(19, 0, fits_int32=False, exact_double=False)),
    ("1152921504606846976", "long", Facts(19, 0, fits_int32=False, exact_double=False)),
    ("1000000000000000000", "long", Facts(19, 0, fits_int32=False)),
    ("9223372036854775808", "decimal", Facts(19, 0, fits_int32=False, exact_double=False)),
    ("100000000000000000000", "decimal", Facts(21, 0, fits_int32=False)),
    ("9" * 38, "decimal", Facts(38, 0, fits_int32=False, exact_double=False)),
    ("9" * 39, "string", NO_FACTS),
    ("9" * 5000, "string", NO_FACTS),
    ("2.5", "double", Facts(1, 1, fits_int32=False)),
    ("2.50", "double", Facts(1, 1, fits_int32=False)),
    ("0.1", "double", Facts(0, 1, fits_int32=False)),
    ("1e3", "double", Facts(4, 0, fits_int32=False)),
    ("120.0", "double", Facts(3, 0, fits_int32=False)),
    ("1.5E-3", "double", Facts(0, 4, fits_int32=False)),
    ("1e300", "double", Facts(301, 0, fits_int32=False, decimal_exact=False)),
    ("-0.0", "double", Facts(0, 0, fits_int32=False, decimal_exact=False)),
    ("0.1000000000000000000001", "decimal", Facts(0, 22, fits_int32=False, exact_double=False)),
    ("12345678901234567.89", "decimal", Facts(17, 2, fits_int32=False, exact_double=False)),
    ("1e400", "string", NO_FACTS),
    ("1e-400", "string", NO_FACTS),
    ("1e9999999999999999999", "string", NO_FACTS),
    ("0." + "1" * 39, "string", NO_FACTS),
]


@pytest.mark.parametrize(("token", "word", "facts"), ROWS, ids=[row[0][:24] for row in ROWS])
def test_a_token_has_the_kind_that_keeps_it_exact(token: str, word: str, facts: Facts) -> None:
    assert number_kind(token) == (word, facts)
