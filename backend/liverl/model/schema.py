"""The version of the JSON that scripts read."""

# Version of the JSON that scripts read: result.json, snapshot.json and `status --json` (tests/data/contract.json
# describes it). Increase it by one with each change that a script could notice.
SCHEMA = 14
