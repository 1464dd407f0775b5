from __future__ import annotations

import pytest

from widen.json.kinds import NO_FACTS, ValueFacts, number_kind

ROWS = [
    ("0", "long", ValueFacts(0, 0)),
    ("-0", "long", ValueFacts(0, 0)),
    ("7", "long", ValueFacts(1, 0)),
    ("-2147483648", "long", ValueFacts(10, 0)),
    ("2147483648", "long", ValueFacts(10, 0, fits_int32=False)),
    ("9007199254740992", "long", ValueFacts(16, 0, fits_int32=False)),
    ("9007199254740993", "long", ValueFacts(16, 0, fits_int32=False, exact_double=False)),
    ("9223372036854775807", "long", ValueFacts(19, 0, fits_int32=False, exact_double=False)),
    ("-9223372036854775808", "long", ValueFacts(19, 0, fits_int32=False, exact_double=False)),
    ("1152921504606846976", "long", ValueFacts(19, 0, fits_int32=False, exact_double=False)),
    ("1000000000000000000", "long", ValueFacts(19, 0, fits_int32=False)),
    ("9223372036854775808", "decimal", ValueFacts(19, 0, fits_int32=False, exact_double=False)),
    ("100000000000000000000", "decimal", ValueFacts(21, 0, fits_int32=False)),
    ("9" * 38, "decimal", ValueFacts(38, 0, fits_int32=False, exact_double=False)),
    ("9" * 39, "string", NO_FACTS),
    ("9" * 5000, "string", NO_FACTS),
    ("2.5", "double", ValueFacts(1, 1, fits_int32=False)),
    ("2.50", "double", ValueFacts(1, 1, fits_int32=False)),
    ("0.1", "double", ValueFacts(0, 1, fits_int32=False)),
    ("1e3", "double", ValueFacts(4, 0, fits_int32=False)),
    ("120.0", "double", ValueFacts(3, 0, fits_int32=False)),
    ("1.5E-3", "double", ValueFacts(0, 4, fits_int32=False)),
    ("1e300", "double", ValueFacts(301, 0, fits_int32=False, decimal_exact=False)),
    ("-0.0", "double", ValueFacts(0, 0, fits_int32=False, decimal_exact=False)),
    ("0.1000000000000000000001", "decimal", ValueFacts(0, 22, fits_int32=False, exact_double=False)),
    ("12345678901234567.89", "decimal", ValueFacts(17, 2, fits_int32=False, exact_double=False)),
    ("1e400", "string", NO_FACTS),
    ("1e-400", "string", NO_FACTS),
    ("1e9999999999999999999", "string", NO_FACTS),
    ("0." + "1" * 39, "string", NO_FACTS),
    ("NaN", "double", ValueFacts(0, 0, fits_int32=False, decimal_exact=False)),
    ("Infinity", "double", ValueFacts(0, 0, fits_int32=False, decimal_exact=False)),
    ("-Infinity", "double", ValueFacts(0, 0, fits_int32=False, decimal_exact=False)),
]


@pytest.mark.parametrize(("token", "word", "facts"), ROWS, ids=[row[0][:24] for row in ROWS])
def test_a_token_has_the_kind_that_keeps_it_exact(token: str, word: str, facts: ValueFacts) -> None:
    assert number_kind(token) == (word, facts)
