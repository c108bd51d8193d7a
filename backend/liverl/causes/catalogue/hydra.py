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
    Signature(
        id="hydra-not-in-struct",
        component="verl",
        role="cause",
        pattern=(
            r"Config(?:Key|Attribute)Error: Key '(?P<name>[^'\n]{1,160})' (?:is )?not in "
            r"(?P<where>struct|'[^'\n]{1,120}')(?:\s{1,8}full_key: (?P<full>\S{1,200}))?"
        ),
        needle="Error: Key '",
        title="The configuration has no key {name}",
        cause=(
            "The program or an override uses {name}, which the configuration ({where}) does not have: it was "
            "renamed, misspelt, or the program is of another version than its configuration."
        ),
        fix=(
            "Compare the names with the configuration of the installed version; +key=value adds one that the "
            "program reads but the configuration lacks."
        ),
        command="python -m verl.trainer.main_ppo --cfg job",
        effect=True,
        source="omegaconf/dictconfig.py",
        fires=(
            "omegaconf.errors.ConfigAttributeError: Key 'rollout_n' is not in struct\n    full_key: "
            "actor_rollout_ref.rollout_n\n    object_type=dict"
        ),
        spares="INFO Config: Error: Key 'rollout_n' is in struct",
    ),
    Signature(
        id="hydra-missing-key",
        component="verl",
        role="cause",
        pattern=r"Config(?:Key|Attribute)Error: Missing key (?P<name>\S{1,160})",
        needle="Error: Missing key ",
        title="The configuration has no key {name}",
        cause=(
            "The program reads {name}, which the configuration does not have: it was renamed, or the program "
            "is of another version than its configuration."
        ),
        fix=(
            "Compare the names with the configuration of the installed version; +key=value adds one that the "
            "program reads."
        ),
        command="python -m verl.trainer.main_ppo --cfg job",
        source="omegaconf/dictconfig.py",
        fires="omegaconf.errors.ConfigAttributeError: Missing key ppo_epochs",
        spares="Missing mandatory value: data.path",
    ),
    Signature(
        id="hydra-environment",
        component="verl",
        role="cause",
        pattern=r"Environment variable '(?P<name>\w{1,100})' not found",
        needle="Environment variable '",
        title="The configuration needs the environment variable {name}",
        cause="A value of the configuration is taken from {name} (oc.env), which is not set.",
        fix="Export {name} before the start, also on the nodes that run the program.",
        command="env | sort",
        source="omegaconf/resolvers/oc",
        fires=(
            "omegaconf.errors.InterpolationResolutionError: KeyError raised while resolving interpolation: "
            "\"Environment variable 'DATA_DIR' not found\""
        ),
        spares="INFO Environment variable 'DATA_DIR' found",
    ),
    Signature(
        id="hydra-resolution",
        component="verl",
        role="cause",
        pattern=(
            "InterpolationResolutionError: (?P<why>(?!KeyError raised while resolving interpolation: "
            r".Environment variable)[^\n]{1,200})(?:\s{1,8}full_key: (?P<key>\S{1,200}))?"
        ),
        needle="InterpolationResolutionError: ",
        title="A value of the configuration cannot be worked out",
        cause="An expression in it (in dollar and braces) failed: {why}.",
        fix=("Correct the expression, or the values that it uses; the full_key below names the setting."),
        command="python -m verl.trainer.main_ppo --cfg job",
        source="omegaconf/errors.py",
        fires=(
            "omegaconf.errors.InterpolationResolutionError: KeyError raised while resolving interpolation: "
            "'anisotropy'"
        ),
        spares=(
            "omegaconf.errors.InterpolationResolutionError: KeyError raised while resolving interpolation: "
            "\"Environment variable 'DATA_DIR' not found\""
        ),
    ),
    Signature(
        id="hydra-twice",
        component="verl",
        role="cause",
        pattern=r"Multiple values for (?P<key>\S{1,160})\. To override a value use",
        needle="Multiple values for ",
        title="The override {key} is added twice",
        cause="Two overrides choose a value for {key}; of a configuration group only one may.",
        fix="Remove one of them, or write override {key} in the defaults list.",
        source="hydra/_internal/defaults_list.py",
        fires="Multiple values for trainer. To override a value use 'override trainer: y'",
        spares="INFO values for trainer: y",
    ),
    Signature(
        id="hydra-no-directory",
        component="verl",
        role="cause",
        pattern=r"Check that the config directory '(?P<path>[^'\n]{1,300})' exists and readable",
        needle="Check that the config directory '",
        title="The configuration directory {path} does not exist",
        cause=("The program looks for its configuration in {path}, which is not there or cannot be read."),
        fix=("Give --config-path (relative to the program's file) or --config-dir (absolute) correctly."),
        command="ls -ld '{path}'",
        source="hydra/_internal/config_loader_impl.py",
        fires=(
            "Primary config directory not found.\nCheck that the config directory '/opt/verl/trainer/confg' "
            "exists and readable"
        ),
        spares="INFO config directory '/opt/verl/trainer/config' exists and readable",
    ),
    Signature(
        id="hydra-target",
        component="verl",
        role="cause",
        pattern=r"Error locating target '(?P<target>[^'\n]{1,200})'",
        needle="Error locating target '",
        title="{target} cannot be imported",
        cause=(
            "_target_ names {target}, which does not exist in the installed packages or fails while it is "
            "imported."
        ),
        fix=("Correct the name, or install what it needs; HYDRA_FULL_ERROR=1 shows the import's own error."),
        source="hydra/_internal/instantiate/_instantiate2.py",
        fires=(
            "hydra.errors.InstantiationException: Error locating target "
            "'verl.workers.config.FSDPActorConfg', set env var HYDRA_FULL_ERROR=1 to see chained exception."
        ),
        spares="INFO target 'verl.workers.config.FSDPActorConfig' located",
    ),
    Signature(
        id="hydra-call",
        component="verl",
        role="consequence",
        pattern=r"Error in call to target '(?P<target>[^'\n]{1,200})'",
        needle="Error in call to target '",
        title="{target} could not be built",
        fix=(
            "Read the exception in the same message; its arguments come from the configuration next to "
            "_target_."
        ),
        source="hydra/_internal/instantiate/_instantiate2.py",
        fires=(
            "hydra.errors.InstantiationException: Error in call to target "
            "'verl.workers.config.FSDPActorConfig':"
        ),
        spares="INFO call to target 'verl.workers.config.FSDPActorConfig'",
    ),
    Signature(
        id="hydra-choice",
        component="verl",
        role="cause",
        pattern=(r"Invalid value '(?P<value>[^'\n]{0,160})', expected one of (?P<choices>[^\n]{1,160})"),
        needle="', expected one of ",
        title="'{value}' is no value that the configuration allows",
        cause="The setting allows one of {choices}.",
        fix="Use one of them; the full_key below names the setting.",
        source="omegaconf/nodes.py",
        fires=(
            "omegaconf.errors.ValidationError: Invalid value 'fdsp', expected one of [fsdp, fsdp2, "
            "megatron]\n    full_key: actor.strategy"
        ),
        spares="INFO value 'fsdp', one of [fsdp, fsdp2]",
    ),
    Signature(
        id="hydra-type-assigned",
        component="verl",
        role="cause",
        pattern=(
            r"Invalid type assigned: (?P<has>\S{1,80}) is not a subclass of (?P<wanted>\S{1,80})\. value: "
            r"(?P<value>[^\n]{0,120})"
        ),
        needle="Invalid type assigned: ",
        title="A setting has the wrong kind of value: {wanted} is wanted",
        cause=(
            "'{value}' is a {has}, and the setting is a section of type {wanted}; the full_key below names "
            "it."
        ),
        fix=(
            "Set a key inside of the section instead of the section itself, or choose an option of its "
            "configuration group."
        ),
        source="omegaconf/base.py",
        fires=(
            "omegaconf.errors.ValidationError: Invalid type assigned: str is not a subclass of "
            "RolloutConfig. value: vllm"
        ),
        spares="INFO type assigned: str",
    ),
    Signature(
        id="hydra-not-optional",
        component="verl",
        role="cause",
        pattern=r"field '(?P<name>[\w.]{1,100})' is not Optional",
        needle="' is not Optional",
        title="{name} must have a value and is set to null",
        cause="The configuration does not allow null for {name}.",
        fix="Give it a value, or leave the override out.",
        source="omegaconf/base.py",
        fires="omegaconf.errors.ValidationError: field 'total_epochs' is not Optional",
        spares="INFO field 'total_epochs' is Optional",
    ),
    Signature(
        id="hydra-resolver",
        component="verl",
        role="cause",
        pattern=r"Unsupported interpolation type (?P<name>[\w.]{1,80})",
        needle="Unsupported interpolation type ",
        title="The configuration uses a resolver that is not registered: {name}",
        cause=(
            "An expression of the form {name}:... stands in the configuration, and the program has not "
            "registered {name}."
        ),
        fix=(
            "Call OmegaConf.register_new_resolver before the configuration is read, or start the program by "
            "the entry that does so."
        ),
        source="omegaconf/base.py",
        fires="omegaconf.errors.UnsupportedInterpolationType: Unsupported interpolation type eval",
        spares="INFO interpolation type eval is registered",
    ),
)
