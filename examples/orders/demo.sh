#!/bin/sh
# Three days of a small coffee shop's orders into one table. Run it with `make demo`.
set -eu
here=$(dirname "$0")
table=$(mktemp -d)/orders
trap 'rm -rf "$(dirname "$table")"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '\033[2m$ widen %s\033[0m\n' "$*"; widen "$@"; }

say "Monday: the first interval. Every field gets the narrowest type that holds it."
run ingest "$here/day1" --into "$table" --verify

say "Tuesday's file is a JSON array, with fractions, lists and a coupon. What would it change?"
run plan "$here/day2" --into "$table" || [ $? -eq 2 ]

say "Take it in."
run ingest "$here/day2" --into "$table" --verify

say "Before Wednesday somebody widens a column by hand: no file is rewritten."
run alter "$table" customer.id --type bigint

say "Wednesday: ids past 2^53 from a market place, loose beans by weight, and one line that is no JSON."
run ingest "$here/day3" --into "$table" --verify

say "One customer over all three days: old and new files together, in the current types."
run read "$table" --where "customer.id = 3305" --select order_id --select customer.name --select total \
  --select total_string --select 'items.sku as sku' --select 'items_array_record.sku as skus' --select tags_array_string

say "What changed, and when."
run history "$table"

say "The report."
run report "$table"

say "The same as a page, for the browser."
mkdir -p .work
run report "$table" --html .work/orders.html
