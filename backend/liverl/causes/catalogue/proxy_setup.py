"""Signatures of LiteLLM's start: its configuration and its database."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="litellm-no-model-key",
        component="litellm",
        role="cause",
        pattern=r"\A(?=[\s\S]*\bin load_config\b)[\s\S]*?KeyError: 'model'",
        needle="KeyError: 'model'",
        title="LiteLLM's configuration has a model without litellm_params.model",
        cause="An entry of model_list names no model to forward to.",
        fix="Give each entry of model_list a litellm_params.model such as hosted_vllm/NAME, and start again.",
        source="LiteLLM 1.108, printed by it",
        fires=(
            "Traceback (most recent call last):\n"
            '  File "litellm/proxy/proxy_server.py", line 3190, in load_config\n'
            "    litellm_model_name = model['litellm_params']['model']\n"
            "KeyError: 'model'"
        ),
        spares="Traceback (most recent call last):\n  File \"a.py\", line 3, in load\nKeyError: 'model'",
        recorded=True,
    ),
    Signature(
        id="litellm-strategy-unknown",
        component="litellm",
        role="cause",
        pattern=r"Invalid routing_strategy: '(?P<name>[^'\n]{1,80})'",
        needle="Invalid routing_strategy: '",
        title="LiteLLM has no routing strategy {name}",
        cause="router_settings.routing_strategy of its configuration is {name}, which this version does not have.",
        fix="Take one of the strategies that the line names, such as simple-shuffle, and start again.",
        source="LiteLLM 1.108, printed by it",
        fires="ValueError: Invalid routing_strategy: 'fastest'. Valid options: ['simple-shuffle', 'least-busy']",
        spares="INFO routing_strategy: 'simple-shuffle'",
        recorded=True,
    ),
    Signature(
        id="litellm-callback-missing",
        component="litellm",
        role="cause",
        pattern=r"ImportError: Could not import (?P<name>\w{1,80}) from (?P<module>[\w.]{1,120})",
        needle="ImportError: Could not import ",
        title="LiteLLM cannot import the callback {name} of {module}",
        cause="Its configuration names {module}.{name}, and there is no such module beside the configuration.",
        fix="Put {module} beside the configuration file, or correct the name under callbacks.",
        source="LiteLLM 1.108, printed by it",
        fires="ImportError: Could not import handler from my_cb",
        spares="ImportError: cannot import name 'handler' from 'my_cb'",
        recorded=True,
    ),
    Signature(
        id="litellm-config-invalid",
        component="litellm",
        role="cause",
        effect=True,
        pattern=r"LiteLLM: config validation failed: (?P<why>[^\n]{1,300})",
        needle="LiteLLM: config validation failed: ",
        title="LiteLLM cannot load its configuration file",
        cause="litellm --validate_config could not load the file that --config names: {why}.",
        fix="Correct this error in that file, and check it with litellm --config FILE --validate_config.",
        source="LiteLLM 1.108 litellm/proxy/proxy_cli.py",
        fires="LiteLLM: config validation failed: Config file not found: /srv/litellm/config.yaml",
        spares="LiteLLM: config OK (2 models)",
    ),
    *family(
        Signature(
            id="litellm-no-prisma",
            component="litellm",
            role="cause",
            pattern="Failed to import Prisma client",
            needle="Failed to import Prisma client",
            title="LiteLLM has a database URL, but not the package for databases",
            cause="Prisma's client is not installed in LiteLLM's environment, or was not generated.",
            fix=(
                "Install it (pip install 'litellm[extra_proxy]' prisma; prisma generate), or remove database_url and "
                "DATABASE_URL: a proxy of a run needs no database."
            ),
            source="LiteLLM issue 30425",
            fires=(
                "20:48:54 - LiteLLM Proxy:ERROR: utils.py:2873 - Failed to import Prisma client: "
                "No module named 'prisma'"
            ),
            spares="LiteLLM Proxy:DEBUG: utils.py:2522 - Success - Created Prisma Client; nothing failed",
        ),
        Text(
            id="litellm-no-prisma-command",
            pattern="a database URL is set but the prisma CLI is neither on PATH",
            needle="a database URL is set but the prisma CLI",
            source="LiteLLM 1.108, printed by it",
            fires=(
                "LiteLLM Proxy: a database URL is set but the prisma CLI is neither on PATH nor importable as a "
                "package"
            ),
            spares="LiteLLM Proxy: a database URL is set; the prisma CLI is on PATH",
            recorded=True,
        ),
        Text(
            id="litellm-no-prisma-program",
            pattern="No such file or directory: 'prisma'",
            needle="No such file or directory: 'prisma'",
            source="LiteLLM issue 1430",
            fires="FileNotFoundError: [Errno 2] No such file or directory: 'prisma'",
            spares="FileNotFoundError: [Errno 2] No such file or directory: 'prisma/schema.prisma'",
        ),
    ),
    Signature(
        id="litellm-database-down",
        component="litellm",
        role="cause",
        pattern=r"(?:NotConnectedError: Not|Client is not) connected to the query engine",
        needle=" connected to the query engine",
        title="LiteLLM has no connection to its database",
        cause="Prisma's query engine did not start, or the database does not answer.",
        fix="See that DATABASE_URL is right and its server answers; a proxy of a run needs no database.",
        source="LiteLLM issues 9298 and 14741",
        fires="prisma.engine.errors.NotConnectedError: Not connected to the query engine",
        spares="Prisma is connected to the query engine",
    ),
)
