"""The published schemas in programs of others: an editor's YAML language server, and a script in JavaScript with Ajv.

npm installs both at the first use, beside the environments of the components.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.npm import installed
from kit.runs import make_run, toy

from liverl.config import leaves
from liverl.config.profiles import default_text
from liverl_tui.cli import main as cli

pytestmark = [pytest.mark.slow]

ANSWER_S = 60.0  # the language server's first answer comes when node has loaded it

# A script of a stranger: it reads a document by its schema, and says what it has learned from it.
READER = """
const Ajv = require("ajv/dist/2020").default;
const fs = require("fs");
const ajv = new Ajv({strict: false, allErrors: true});
require("ajv-formats").default(ajv);
const fits = ajv.compile(JSON.parse(fs.readFileSync(process.argv[2])));
const document = JSON.parse(fs.readFileSync(0));
if (!fits(document)) {
  console.log(ajv.errorsText(fits.errors));
  process.exit(1);
}
console.log([document.run, document.state, ...document.services.map(s => s.name + "=" + s.state)].join(" "));
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", cli.__name__, *words]


def schema(name: str, folder: Path) -> Path:
    """The file that a user makes with ``liverl-tui schema``."""
    path = folder / f"{name}.schema.json"
    with path.open("wb") as file:
        subprocess.run(command("schema", name), stdout=file, check=True)
    return path


class LanguageServer:
    """An editor's side of the protocol: headers and JSON on the pipes of the server."""

    def __init__(self, modules: Path, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [str(modules / ".bin" / "yaml-language-server"), "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.asked = 0
        self.request("initialize", processId=None, rootUri=folder.as_uri(), capabilities={})
        self.send("initialized", {})
        # No store of schemas of the network: the line in the file must be enough.
        wanted = {
            "yaml": {"schemaStore": {"enable": False}, "completion": True, "hover": True, "validate": True}
        }
        self.send("workspace/didChangeConfiguration", {"settings": wanted})

    def _listen(self) -> None:
        out = self.process.stdout
        assert out is not None
        while line := out.readline():
            length = 0
            while line.strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
                line = out.readline()
            self.said.put(json.loads(out.read(length)))

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def _next(self) -> dict[str, Any]:
        """What it says next; what it asks of an editor is answered with null."""
        message = self.said.get(timeout=ANSWER_S)
        if "id" in message and "method" in message:
            asked = message["params"] if isinstance(message.get("params"), dict) else {}
            self._write({"id": message["id"], "result": [None for _ in asked.get("items", ())] or None})
        return message

    def request(self, method: str, **params: Any) -> Any:
        self.asked += 1
        self._write({"id": self.asked, "method": method, "params": params})
        while True:
            message = self._next()
            if message.get("id") == self.asked and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def problems(self, name: str, text: str) -> list[str]:
        """Open a file; what the server marks in it, as ``line: message``."""
        uri = (self.folder / name).as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self.send("textDocument/didOpen", {"textDocument": document})
        while True:
            message = self._next()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri:
                return [
                    f"{one['range']['start']['line'] + 1}: {one['message']}"
                    for one in message["params"]["diagnostics"]
                ]

    def at_the_end(self, method: str, name: str, text: str) -> Any:
        """Open a file and ask ``method`` at its end."""
        self.problems(name, text)
        lines = text.split("\n")
        return self.request(
            f"textDocument/{method}",
            textDocument={"uri": (self.folder / name).as_uri()},
            position={"line": len(lines) - 1, "character": len(lines[-1])},
        )


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    modules = installed("yaml-language-server", "yaml-language-server")
    folder = tmp_path_factory.mktemp("editor")
    schema("config", folder)
    server = LanguageServer(modules, folder)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


HEAD = "# yaml-language-server: $schema=config.schema.json\n"


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("run: {sed: 1}", ["Property sed is not allowed."]),
        ("training:\n  total_steps: many", ["expected a whole number >= 1"]),
        ("trainer:\n  kind: embeded", ["Value is not accepted."]),
        ("infrastructure:\n  litellm_port: 70000", ["above the maximum of 65535"]),
        ("training:\n  total_steps: 7", []),
        (default_text().rstrip(), []),
    ],
    ids=["unknown key", "wrong type", "no such choice", "out of range", "a right file", "the default"],
)
def test_an_editor_marks_what_is_wrong(
    text: str, marked: list[str], editor: LanguageServer, request: pytest.FixtureRequest
) -> None:
    said = editor.problems(f"{request.node.callspec.id.replace(' ', '-')}.yaml", HEAD + text + "\n")
    assert len(said) == len(marked), said
    for wanted, one in zip(marked, said, strict=True):
        assert wanted in one
        assert one.startswith(f"{1 + len(text.splitlines())}: ")


def test_an_editor_completes_keys_and_choices_and_explains_them(editor: LanguageServer) -> None:
    def offered(name: str, text: str) -> set[str]:
        answer = editor.at_the_end("completion", name, HEAD + text)
        items = answer["items"] if isinstance(answer, dict) else answer
        return {item["label"] for item in items}

    assert {key.split(".")[0] for key in leaves()} <= offered("sections.yaml", "")
    of_trainer = {key.split(".")[1] for key in leaves() if key.startswith("trainer.")}
    assert of_trainer <= offered("keys.yaml", "trainer:\n  ")
    assert {"embedded", "verl", "command", "none"} <= offered("choices.yaml", "trainer:\n  kind: ")
    hover = editor.at_the_end("hover", "hover.yaml", HEAD + "training:\n  total_steps: 7")
    assert hover is not None and "step" in hover["contents"]["value"].lower()


def test_a_script_in_javascript_reads_a_status_by_its_schema(tmp_path: Path) -> None:
    modules = installed("ajv", "ajv", "ajv-formats")
    node = shutil.which("node")
    assert node is not None, "npm needs node"
    script = modules.parent / f"reader-{tmp_path.name}.cjs"
    published = schema("status", tmp_path)

    def read(document: bytes) -> tuple[int, str]:
        done = subprocess.run(
            [node, script, published],
            input=document,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout.decode().strip()

    def status() -> bytes:
        return subprocess.run(
            command("status", "--json", str(run.run_dir)), stdout=subprocess.PIPE, check=True
        ).stdout

    run = make_run(tmp_path / "runs", [toy("task", "sleep")])
    script.write_text(READER)
    try:
        run.start()
        run.until("task", "ready")
        living = status()
        name = run.snapshot().run
        assert read(living) == (0, f"{name} running task=ready")
        wrong = json.loads(living)
        wrong["services"][0]["state"] = 7
        code, said = read(json.dumps(wrong).encode())
        assert code == 1 and "services/0/state" in said
        run.command("stop")
        run.result()
        code, said = read(status())
        assert (code, said.split()[:2]) == (0, [name, "stopped"]), said
    finally:
        run.end()
        script.unlink()
