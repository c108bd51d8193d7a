"""Signatures of agents' own programs and their tools: MCP servers, command lines of agents, entry points, files."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="agent-api-unreachable",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"API Error: (?:Connection error|Request timed out|fetch failed)",
            needle="API Error: ",
            title="An agent got no answer from the model server",
            cause="The agent's connection to its base URL failed or timed out, also after its retries.",
            fix=(
                "Try the base URL from inside of the sandbox; check the proxy's log, and the sandbox's network "
                "and proxy variables."
            ),
            command="curl -sv --max-time 10 $ANTHROPIC_BASE_URL/v1/models",
            source="Claude Code",
            fires="Error: API Error: Connection error.",
            spares="INFO no API Error: all well",
        ),
        Text(
            "agent-api-unreachable-brackets",
            "API Error (",
            r"API Error \((?:Connection error|Request timed out)",
            "API Error (Connection error.) · Retrying in 5 seconds… (attempt 4/10)",
            "INFO no API Error (at all)",
        ),
    ),
    Signature(
        id="agent-api-status",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"API Error: (?P<status>[45]\d\d)\b(?![^\n]{0,200}(?:authentication_error|overloaded_error))",
        needle="API Error: ",
        title="The model server answered an agent with HTTP {status}",
        cause="The request reached a server, which refused it or failed.",
        fix=(
            "400: the request's form or length; 401 and 403: the key; 404: the model's name or the base URL; "
            "429: fewer "
            "requests at once; 5xx: the log of the proxy and the model server."
        ),
        source="Claude Code",
        fires='API Error: 500 {"error":{"message":"Internal server error"}}',
        spares='API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}',
    ),
    *family(
        Signature(
            id="mcp-silent",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"MCP error -32001: Request timed out",
            needle="MCP error -32001: Request timed out",
            title="An MCP server did not answer in time",
            cause="The server of an agent's tools is slow to start (npx or uvx download it first), or hangs.",
            fix=(
                "Install the server in the image instead of downloading it at the start; raise MCP_TIMEOUT; see "
                "its own log."
            ),
            source="MCP SDK",
            fires="McpError: MCP error -32001: Request timed out",
            spares="INFO no MCP error -32001",
        ),
        Text(
            "mcp-closed",
            "MCP error -32000: Connection closed",
            r"MCP error -32000: Connection closed",
            "McpError: MCP error -32000: Connection closed",
            "INFO no MCP error -32000: Connection is open",
        ),
    ),
    Signature(
        id="program-not-installed",
        component="host",
        role="cause",
        alive=True,
        pattern=r"\bspawn (?P<name>[\w./@+-]{1,200}) ENOENT",
        needle=" ENOENT",
        title="The program {name} is not installed here",
        cause="A Node.js program (an agent, an MCP client) tried to start {name}, which is not on its PATH.",
        fix="Install it in the image, or name it by its absolute path.",
        command="command -v {name}; echo $PATH",
        source="Node.js",
        fires="[error] spawn uvx ENOENT",
        spares="INFO spawn uvx without ENOENT",
    ),
    *family(
        Signature(
            id="entry-point-missing",
            component="host",
            role="cause",
            pattern=r"\[FATAL tini \(\d{1,8}\)\] exec (?P<name>[^\n]{1,200}?) failed: (?P<why>[\w ]{1,60})",
            needle="[FATAL tini (",
            title="A container's entry point cannot be run: {name}",
            cause="The image's entry point got {name} as the program to run: {why}.",
            fix="Give the program before its options in command or entrypoint, and check that it is in the image.",
            source="tini",
            fires="[FATAL tini (6)] exec --port failed: No such file or directory",
            spares="[FATAL tini (6)] started",
        ),
        Text(
            "entry-point-missing-dash",
            ": exec: ",
            r": \d{1,6}: exec: (?P<name>[^\n:]{1,200}): (?P<why>not found|Permission denied)",
            "/entrypoint.sh: 12: exec: vllm: not found",
            "INFO /entrypoint.sh: exec: vllm",
            "dash",
        ),
    ),
    Signature(
        id="tool-no-file",
        component="shell",
        role="cause",
        alive=True,
        pattern=(
            r"(?:^|\n)(?P<tool>touch|cp|mv|tee|ln|install|tail|head|tar|unzip|sed|wc|chown|chmod|cat): "
            r"[^\n]{0,60}?[‘'\"](?P<path>[^’'\"\n]{1,300})[’'\"][^\n]{0,60}?: No such file or directory"
        ),
        needle=": No such file or directory",
        title="{tool} misses {path}",
        cause=(
            "The file or its folder is not there: a wrong path or working directory, or it was not mounted "
            "or copied."
        ),
        fix="Create the folder first (mkdir -p), correct the path, or mount it.",
        command="ls -ld '{path}'",
        source="coreutils",
        fires="touch: cannot touch '/logs/a.log': No such file or directory",
        spares="INFO touch '/logs/a.log': no such problem; No such file or directory",
    ),
    *family(
        Signature(
            id="tool-no-permission",
            component="shell",
            role="cause",
            alive=True,
            pattern=(
                r"(?:^|\n)(?P<tool>touch|cp|mv|tee|ln|install|tail|head|tar|sed|rm|mkdir|rmdir|chown|chmod|cat|ls|"
                r"find): [^\n]{0,60}?[‘'\"](?P<path>[^’'\"\n]{1,300})[’'\"][^\n]{0,60}?: (?P<why>Permission "
                r"denied)"
            ),
            needle=": Permission denied",
            title="{tool} may not use {path}: {why}",
            cause="The file or folder belongs to another user, or its mode, mount or capabilities forbid it.",
            fix="Correct its owner (chown) or mode, or run the step as the user who owns it.",
            command="ls -ld '{path}'; id",
            source="coreutils",
            fires="mkdir: cannot create directory '/logs': Permission denied",
            spares="INFO mkdir: no Permission denied: '/logs'",
        ),
        Text(
            "tool-not-permitted",
            ": Operation not permitted",
            (
                r"(?:^|\n)(?P<tool>touch|cp|mv|tee|ln|install|tail|head|tar|sed|rm|mkdir|rmdir|chown|chmod|cat|ls|"
                r"find): [^\n]{0,60}?[‘'\"](?P<path>[^’'\"\n]{1,300})[’'\"][^\n]{0,60}?: (?P<why>Operation not "
                r"permitted)"
            ),
            "chown: changing ownership of '/data': Operation not permitted",
            "INFO no Operation not permitted: fine",
        ),
    ),
    Signature(
        id="pip-no-permission",
        component="shell",
        role="cause",
        alive=True,
        pattern=(
            r"Could not install packages due to an (?:OS|Environment)Error: \[Errno 13\] Permission denied: "
            r"'(?P<path>[^'\n]{1,300})"
        ),
        needle="Could not install packages due to an ",
        title="pip may not write {path}",
        cause="The folder belongs to another user.",
        fix="Install into a virtual environment of this user, or run the step as root.",
        command="ls -ld '{path}'; id",
        source="pip",
        fires="ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/home/a'",
        spares="ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
    ),
)
