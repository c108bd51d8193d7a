"""Signatures of Hydra, which reads verl's configuration."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="hydra-renamed",
        component="verl",
        role="cause",
        # With HYDRA_FULL_ERROR=1 the line after it ("To append to your config ...") is not of the traceback any more.
        pattern=r"Could not override '(?P<key>[^'\n]{1,200})'\.",
        needle="Could not override '",
        title="This verl has no configuration key {key}",
        cause="{key} does not exist in the installed verl: it was renamed or misspelt.",
        fix=(
            "Correct it in trainer.overrides or in the launch script{meant}: the names are those of the installed "
            "version. +{key} would add it as a new key."
        ),
        command="python -m verl.trainer.main_ppo --cfg job",
        source="recordings/verl_cpu/fail_hydra_full_error.log",
        fires="hydra.errors.ConfigCompositionException: Could not override 'trainer.max_ckpt_to_keep'.",
        spares="Could not append to config. An item is already at 'trainer.nnodes'.",
        recorded=True,
    ),
    Signature(
        id="hydra-exists",
        component="verl",
        role="cause",
        pattern=r"Could not append to config\. An item is already at '(?P<key>[^'\n]{1,200})'",
        needle="Could not append to config. An item is already at '",
        title="The override +{key} adds a key that exists already",
        cause="A + adds a new key, and verl has {key} itself.",
        fix="Remove the + before {key} in trainer.overrides or in the launch script.",
        source="hydra _internal/config_loader_impl.py",
        fires=(
            "Could not append to config. An item is already at 'trainer.nnodes'.\nEither remove + prefix: "
            "'trainer.nnodes=2'"
        ),
        spares="Could not override 'trainer.nnode'.\nTo append to your config use +trainer.nnode=2",
    ),
    Signature(
        id="hydra-delete",
        component="verl",
        role="cause",
        pattern=r"Could not delete from config\. '(?P<key>[^'\n]{1,200})' does not exist",
        needle="Could not delete from config. '",
        title="The override ~{key} removes a key that does not exist",
        cause="This verl has no {key}.",
        fix="Remove ~{key} from trainer.overrides or from the launch script.",
        source="hydra _internal/config_loader_impl.py",
        fires="Could not delete from config. 'trainer.foo' does not exist.",
        spares="Could not delete from config. The value of 'trainer.nnodes' is 1 and not 2.",
    ),
    Signature(
        id="hydra-wrong-type",
        component="verl",
        role="cause",
        pattern=(
            r"Value '(?P<value>[^'\n]{0,200})' of type '\w{1,40}' could not be converted to "
            r"(?P<type>\w{1,40})\s{1,8}full_key: (?P<key>\S{1,200})"
        ),
        needle=" could not be converted to",
        title="{key} must be of type {type}, and '{value}' is not",
        cause="The override gives {key} a value of the wrong type.",
        fix=(
            "Give {key} a value of type {type}; infrastructure.ngpus_per_node and infrastructure.nnodes "
            "set trainer.n_gpus_per_node and trainer.nnodes."
        ),
        source="recordings/cases/47-made-hydra-wrong-type.log",
        fires=(
            "Value 'eight' of type 'str' could not be converted to Integer\n    full_key: "
            "trainer.n_gpus_per_node"
        ),
        spares="could not convert string to float: 'eight'",
        recorded=True,
    ),
    Signature(
        id="hydra-interpolation",
        component="verl",
        role="cause",
        pattern=r"Interpolation key '(?P<key>[^'\n]{1,200})' not found",
        needle="Interpolation key '",
        title="The configuration refers to {key}, which does not exist",
        cause="A value contains ${{{key}}}, and there is no such key: it was renamed or misspelt.",
        fix="Use the key's name in this version in trainer.overrides or in the launch script{meant}.",
        source="recordings/cases/50-made-hydra-interpolation.log",
        fires="omegaconf.errors.InterpolationKeyError: Interpolation key 'trainer.nodes' not found",
        spares="DEBUG Interpolation key 'trainer.nnodes' found",
        recorded=True,
    ),
    Signature(
        id="hydra-grammar",
        component="verl",
        role="cause",
        pattern=r"no viable alternative at input '(?P<text>[^\n]{1,120}?)'",
        needle="no viable alternative at input '",
        title="An override of verl cannot be read at '{text}'",
        cause="The value breaks Hydra's grammar: a comma, bracket, colon or space is not quoted.",
        fix='Quote the value in trainer.overrides or in the launch script, lists as "[a,b]".',
        source="hydra core/override_parser/overrides_parser.py (ANTLR)",
        fires="no viable alternative at input '[a'",
        spares="WARN an alternative was chosen at input 'trainer.nnodes=2'",
    ),
    Signature(
        id="hydra-no-config",
        component="verl",
        role="cause",
        pattern=r"Cannot find primary config '(?P<name>[^'\n]{1,120})'",
        needle="Cannot find primary config '",
        title="verl's configuration {name} was not found",
        cause="--config-name names {name}, and no directory of Hydra's search path has it.",
        fix="Correct --config-name and --config-path of the launch script.",
        source="hydra _internal/defaults_list.py",
        fires="Cannot find primary config 'ppo_trainr'. Check that it's in your config search path.",
        spares="Could not find 'model/foo'",
    ),
    Signature(
        id="hydra-no-group",
        component="verl",
        role="cause",
        pattern=(
            r"(?:In '[^'\n]{1,120}': )?Could not find '(?P<name>[^'\n]{1,120})'\s{1,4}Available options in"
        ),
        needle="Could not find '",
        title="The configuration group has no option {name}",
        cause=(
            "A defaults list or an override chooses {name}, which this verl does not have; the message "
            "lists those it has."
        ),
        fix="Choose one of the list, in trainer.overrides or in the launch script.",
        source="hydra _internal/defaults_list.py",
        fires="In 'ppo_trainer': Could not find 'actor/fsdp3'\n\nAvailable options in 'actor':\n\tdp_actor",
        spares="Could not find platform independent libraries <prefix>",
    ),
    Signature(
        id="hydra-missing",
        component="verl",
        role="cause",
        pattern=r"Missing mandatory value: (?P<key>[\w.]{1,200})",
        needle="Missing mandatory value:",
        title="{key} must be set, and is not",
        cause="verl's configuration has ??? for {key}.",
        fix='Set "{key}" in trainer.overrides or in the launch script.',
        source="omegaconf basecontainer.py",
        fires="omegaconf.errors.MissingMandatoryValue: Missing mandatory value: data.train_files",
        spares="ValueError: Missing value",
    ),
)
