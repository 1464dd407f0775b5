#!/bin/sh
# boto3 1.44.5. The environment variable AWS_REGION, which other SDKs of AWS and Rust's object_store read, has no effect.
# Expected: a client in the region of AWS_REGION, as the SDKs for Go, Java, JavaScript and Rust give it.
# Seen: NoRegionError: You must specify a region. AWS_DEFAULT_REGION works.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check boto3==1.44.5
unset AWS_DEFAULT_REGION AWS_PROFILE
HOME=$place AWS_REGION=eu-central-1 AWS_EC2_METADATA_DISABLED=true \
  "$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import os

import boto3
from botocore.exceptions import NoRegionError

assert boto3.__version__ == "1.44.5"
try:
    boto3.client("sqs")
except NoRegionError as error:
    seen = str(error)
assert seen == "You must specify a region.", seen
os.environ["AWS_DEFAULT_REGION"] = "eu-central-1"
assert boto3.Session().client("sqs").meta.region_name == "eu-central-1"
print("boto3 1.44.5 with AWS_REGION=eu-central-1:", seen)
END
