"""``make_rows.py PROBLEMS.jsonl [DIR]``: rows for verl from problems in the shape of GSM8K. Needs pyarrow.

Every fourth problem is for validation.
"""

import json
import sys
from pathlib import Path

ASK = " Think step by step, and write the answer behind ####."


def row(problem: dict[str, str], index: int, split: str) -> dict[str, object]:
    """A row with verl's columns. The answer is the text behind ``####``, without commas in numbers."""
    _, mark, answer = problem["answer"].rpartition("####")
    if not mark:
        raise SystemExit(f"problem {index}: its answer has no line '#### NUMBER'")
    return {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": problem["question"] + ASK}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer.strip().replace(",", "")},
        "extra_info": {"split": split, "index": index},
    }


def rows(lines: list[str]) -> dict[str, list[dict[str, object]]]:
    """File name -> its rows."""
    problems = [json.loads(line) for line in lines if line.strip()]
    found: dict[str, list[dict[str, object]]] = {"train": [], "val": []}
    for index, problem in enumerate(problems):
        split = "val" if index % 4 == 3 else "train"
        found[split].append(row(problem, index, split))
    return found


def main() -> None:
    """Write the files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(sys.argv[2] if len(sys.argv) > 2 else ".")
    for name, found in rows(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()).items():
        pq.write_table(pa.Table.from_pylist(found), folder / f"{name}.parquet")
        print(f"{folder / name}.parquet: {len(found)} rows")


if __name__ == "__main__":
    main()
