"""When a quoted line was written: a line in JSON states it in a field, which may stand behind a long message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from liverl.offline.doctor.examine import examine

AT = datetime(2026, 8, 23, 10, 0, 1, tzinfo=UTC).timestamp()
ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LONG = f"{ERROR} {'x' * 900}"


@pytest.mark.parametrize("before", ["", "litellm-1    | ", "\x1b[36m(TaskRunner pid=12)\x1b[0m "])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"message": ERROR, "level": "ERROR", "timestamp": "2026-08-23T10:00:01Z"}, id="LiteLLM"),
        pytest.param({"message": LONG, "level": "ERROR", "timestamp": "2026-08-23T10:00:01Z"}, id="long"),
        pytest.param(
            {"event": ERROR, "level": "error", "timestamp": "2026-08-23T10:00:01+00:00"}, id="structlog"
        ),
        pytest.param({"level": "error", "ts": AT, "msg": ERROR}, id="zap"),
        pytest.param({"level": 50, "time": int(AT * 1000), "msg": ERROR}, id="pino"),
        pytest.param(
            {"log": f"{ERROR}\n", "stream": "stderr", "time": "2026-08-23T10:00:01.25Z"}, id="Docker"
        ),
    ],
)
def test_the_time_of_a_line_in_json_is_the_one_that_it_states(
    tmp_path: Path, fields: dict[str, Any], before: str
) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"{before}{json.dumps(fields)}\n")

    found = examine([log])

    assert found.verdict.cause is not None
    ((_, when),) = [one for one in found.times.items() if one[0][1] == 0]
    assert when.how == "stamp"
    assert int(when.at) == int(AT)
