"""Reads the rows of a user's own run. Runs in the interpreter of verl's environment, by ``data_rows``.

Imports nothing of liverl, and of verl only the source of its reward function is read: importing it takes 10 to 30 s.
Arguments: files, modules and ``Prompts`` as JSON, and directories with the user's modules. It prints an ``Answer`` as
JSON.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MOST = 200  # groups of rows of which the first is read whole
_GROUPS = 20_000  # that are counted
_BATCH = 1024  # rows
NO_MESSAGES, NO_TEXT = "no messages", "no text"
AS_TEXT = "<image> or the like in a text"
_MEDIA = ("image", "image_url", "input_image", "video", "video_url", "audio", "audio_url", "input_audio")
_TAGS = ("<image>", "<video>", "<audio>")

Known = Mapping[str, Sequence[str]]


class Rows:
    """One parquet file. ``prompts``: see ``data_rows.Prompts``; ``known``: the sources that verl scores."""

    def __init__(self, name: str, prompts: Mapping[str, Any], known: Known | None) -> None:
        self._arrow: Any = importlib.import_module("pyarrow")
        self._compute: Any = importlib.import_module("pyarrow.compute")
        self._file: Any = importlib.import_module("pyarrow.parquet").ParquetFile(name)
        self._prompts, self._known = prompts, known
        self._columns: list[str] = self._file.schema_arrow.names
        self._media = [column for column in prompts["media"] if column in self._columns]
        self._loops: dict[str, int] = {}
        self._tasks: dict[tuple[str, str], dict[str, Any]] = {}
        self._alike: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._looked = 0
        self._longest = (-1, 0)  # characters, and row below 0

    def read(self) -> dict[str, Any]:
        """The ``File``."""
        count: int = self._file.metadata.num_rows
        self._scan()
        alike = sorted(self._alike.values(), key=lambda group: (not group["odd"], group["row"]))[:MOST]
        shown = {group["row"] for group in alike} | set(range(min(3, count)))
        if self._looked:
            shown.add(-self._longest[1])
        rows = dict(self._chosen(sorted(shown)))
        return {
            "count": count,
            "columns": self._columns,
            "rows": rows,
            "loops": self._loops if "agent_name" in self._columns else {},
            "tasks": list(self._tasks.values()),
            "tokens": tokens_of(rows, self._prompts),
            "alike": alike,
            "looked": self._looked if self._known_columns() else count,
        }

    def _scan(self) -> None:
        """Look at every row, but end in time."""
        end = time.monotonic() + self._prompts["seconds"]
        used = self._known_columns()
        for batch in self._file.iter_batches(_BATCH, columns=used) if used else ():
            if time.monotonic() > end:
                break
            self._take({name: batch.column(name) for name in batch.schema.names}, batch.num_rows)
            self._looked += batch.num_rows

    def _known_columns(self) -> list[str]:
        """The columns that are looked at; of a mapping the parts, of pictures the smallest one."""
        leaves = [self._file.schema.column(i).path for i in range(len(self._file.schema))]
        metadata = self._file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]

        def of(column: str, *parts: str) -> list[str]:
            of_column = [leaf for leaf in leaves if leaf.split(".")[0] == column]
            return [leaf for leaf in of_column if {*parts} <= {*leaf.split(".")}]

        def size(leaf: str) -> int:
            return sum(group.column(leaves.index(leaf)).total_compressed_size for group in groups)

        used = [leaf for name in (self._prompts["column"], "agent_name", "data_source") for leaf in of(name)]
        used += [
            *of("extra_info", "task_path"),
            *of("extra_info", "task_id"),
            *of("reward_model", "ground_truth"),
        ]
        return used + [min(of(column), key=size) for column in self._media]

    def _take(self, given: Mapping[str, Any], count: int) -> None:
        none = [None] * count
        names, sources, messages = (
            given[name].to_pylist() if name in given else none
            for name in ("agent_name", "data_source", self._prompts["column"])
        )
        paths, ids = (self._part(given.get("extra_info"), name) or none for name in ("task_path", "task_id"))
        truthless = self._truthless(given.get("reward_model")) or [True] * count
        pictures: list[str | None] = [None] * count
        for column in self._media:
            filled = self._filled(given[column])
            pictures = [old or (column if new else None) for old, new in zip(pictures, filled, strict=True)]
        for at in range(count):
            row, loop, path = self._looked + at, str(names[at]), str(paths[at] or "")
            self._loops[loop] = self._loops.get(loop, 0) + 1
            if path:
                new = {"loop": loop, "path": path, "row": row, "count": 0}
                self._tasks.setdefault((loop, path), new)["count"] += 1
            shape, media, size = look(messages[at])
            self._longest = max(self._longest, (size, -row))
            if media == AS_TEXT and self._media:
                media = self._media[0]
            media = pictures[at] or media
            source = self._source(sources[at])
            of_ours = ids[at] is not None and str(ids[at]) in self._prompts["tasks"]
            key = (loop, bool(path), of_ours, source, truthless[at], shape, media)
            if key in self._alike or len(self._alike) < _GROUPS:
                odd = bool(shape or media or truthless[at] or source)
                group = {"row": row, "count": 0, "shape": shape, "media": media, "odd": odd}
                self._alike.setdefault(key, group)["count"] += 1

    def _source(self, source: Any) -> str:
        """What a data_source counts as: empty if verl is known to score it."""
        if not isinstance(source, str):
            return f"{type(source).__name__}, no text"
        known = self._known or {}
        scored = source in known.get("exact", ()) or source.startswith(tuple(known.get("beginnings", ())))
        return "" if scored else source

    def _part(self, array: Any, name: str) -> list[Any]:
        """A part of a mapping in each row; nothing if there is no such part."""
        types = self._arrow.types
        if array is None or not types.is_struct(array.type) or array.type.get_field_index(name) < 0:
            return []
        return [None if row is None else row[name] for row in array.to_pylist()]

    def _truthless(self, array: Any) -> list[bool]:
        """Whether each row has no ground truth; nothing if none has."""
        if array is None or not self._arrow.types.is_struct(array.type):
            return []
        place = array.type.get_field_index("ground_truth")
        if place < 0:
            return []
        found: list[bool] = self._compute.is_null(self._compute.struct_field(array, [place])).to_pylist()
        return found

    def _filled(self, array: Any) -> list[bool]:
        """Whether each row has anything in a column of pictures."""
        types, kind = self._arrow.types, array.type
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return [bool(length) for length in self._compute.list_value_length(array).to_pylist()]
        found: list[bool] = self._compute.is_valid(array).to_pylist()
        return found

    def _chosen(self, numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows with all their columns but those of pictures, by number."""
        columns = [column for column in self._columns if column not in self._media]
        start = 0
        for group in range(self._file.num_row_groups):
            end = start + self._file.metadata.row_group(group).num_rows
            wanted = [n for n in numbers if start <= n < end]
            batches = self._file.iter_batches(_BATCH, row_groups=[group], columns=columns) if wanted else ()
            for batch in batches:
                for n in wanted:
                    if start <= n < start + batch.num_rows:
                        yield n, batch.slice(n - start, 1).to_pylist()[0]
                start += batch.num_rows
                if start > wanted[-1]:
                    break
            start = end


def look(messages: Any) -> tuple[str, str, int]:
    """What is wrong with the shape of a prompt; what it has of pictures; characters of its text."""
    nothing = (NO_MESSAGES, "", 0)
    if not isinstance(messages, list) or not messages:
        return nothing
    media, size, something = "", 0, False
    for message in messages:
        if (
            not isinstance(message, dict)
            or not isinstance(message.get("role"), str)
            or "content" not in message
        ):
            return nothing
        content = message["content"]
        for part in content if isinstance(content, list) else [content]:
            if not isinstance(part, (str, dict, type(None))):
                return nothing
            found = _media_of(part) if isinstance(part, dict) else None
            if found is not None:
                media, something = f"a part of type {found}", True
            words = part.get("text") if isinstance(part, dict) else part
            if isinstance(words, str) and words:
                size, something = size + len(words), True
                if not media and any(tag in words for tag in _TAGS):
                    media = AS_TEXT
    return "" if something else NO_TEXT, media, size


def _media_of(part: Mapping[str, Any]) -> str | None:
    """What a part of a message has beside text; None for nothing. A column has the names of all parts of all rows."""
    named = {part.get("type"), *(name for name, value in part.items() if value is not None)}
    return next((kind for kind in _MEDIA if kind in named), None)


def tokens_of(rows: Mapping[int, Mapping[str, Any]], prompts: Mapping[str, Any]) -> dict[int, int]:
    """The tokens that the prompts of these rows have at least; empty if that cannot be told."""
    try:
        encoder: Any = importlib.import_module("tokenizers").Tokenizer.from_file(prompts["tokenizer"])
    except Exception:  # noqa: BLE001 - there is none
        return {}
    found = {}
    for number, row in rows.items():
        messages = row.get(prompts["column"])
        texts = (
            [m.get("content") for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
        )
        text = "\n".join(text for text in texts if isinstance(text, str))[: prompts["longest"]]
        found[number] = len(encoder.encode(text, add_special_tokens=False).ids)
    return found


def read(name: str, prompts: Mapping[str, Any], known: Known | None) -> dict[str, Any]:
    """The ``File``, or why it cannot be read."""
    try:
        return Rows(name, prompts, known).read()
    except Exception as error:  # noqa: BLE001 - of a file of the user's
        return {"error": str(error).splitlines()[0] if str(error) else type(error).__name__}


def scored() -> Known:
    """The sources for which verl has a reward function.

    Raises:
        LookupError: verl is not installed.
        OSError: its source cannot be read.
    """
    package = importlib.util.find_spec("verl")
    if package is None or not package.submodule_search_locations:
        raise LookupError("verl is not installed")
    place = package.submodule_search_locations[0]
    with open(os.path.join(place, "utils", "reward_score", "__init__.py")) as source:
        tree = ast.parse(source.read())
    exact: set[Any] = set()
    beginnings: set[Any] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and getattr(node.left, "id", "") == "data_source":
            exact.update(c.value for c in ast.walk(node) if isinstance(c, ast.Constant))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "data_source.startswith":
            beginnings.update(c.value for a in node.args for c in ast.walk(a) if isinstance(c, ast.Constant))
    return {"exact": sorted(exact), "beginnings": sorted(beginnings)}


def modules_of(names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Modules that cannot be imported -> why, and the Python files of the others."""
    missing, sources = {}, {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except Exception as error:  # noqa: BLE001 - of a module of the user's
            missing[name] = f"{type(error).__name__}: {error}"
            continue
        if spec is None:
            missing[name] = "there is no such module"
        elif spec.has_location and spec.origin is not None and spec.origin.endswith(".py"):
            sources[name] = spec.origin
    return missing, sources


def main() -> None:
    """Answer."""
    files, modules, prompts = json.loads(sys.argv[1])
    sys.path[:0] = [folder for folder in sys.argv[2].split(os.pathsep) if folder]
    known, unknown = None, ""
    try:
        known = scored()
    except Exception as error:  # noqa: BLE001 - told
        unknown = f"{type(error).__name__}: {error}"
    missing, sources = modules_of(modules)
    answer = {
        "files": {key: read(name, prompts, known) for key, name in files.items()},
        "scored": known,
        "unknown": unknown,
        "missing": missing,
        "sources": sources,
    }
    print(json.dumps(answer, default=str))


if __name__ == "__main__":
    main()
