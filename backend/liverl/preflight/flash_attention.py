"""Whether the trainer's attention can be computed in its environment: flash-attn, padding, the split of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from liverl.config.attention import CRITIC_NEEDS, REMOVE_PADDING, has_flash_attention, with_critic
from liverl.config.schema import RunConfig
from liverl.config.sizing import bare_key
from liverl.model import Check
from liverl.plan.attention import IMPLEMENTATION, SP_SIZE
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import ask_python, interpreter
from liverl.preflight.subject import main_service, variables_of

NAME = "flash-attn"
_SP = "actor_rollout_ref.actor.ulysses_sequence_parallel_size"
_FLASH = ("flash_attention_2", "flash_attention_3")  # transformers' names; verl's default is the first
_FIND = "import importlib.util, json; print(json.dumps(importlib.util.find_spec('flash_attn') is not None))"
_GET = "install flash-attn into it (a wheel that fits its torch, or a build of some hours)"


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """One check of a trainer on GPUs; none on a CPU, for which sdpa is always planned."""
    if config.verl.device != "cuda":
        return
    trainer = main_service(plan)
    words = {
        bare_key(w.partition("=")[0]): w.partition("=")[2].strip("'\"") for w in trainer.argv if "=" in w
    }
    removes_padding = words.get(REMOVE_PADDING, "True").lower() != "false"
    implementation = words.get(IMPLEMENTATION, _FLASH[0])
    split = int(words[_SP]) if words.get(_SP, "").isdecimal() else 1
    python = interpreter(plan)
    where = str(python) if python is not None else "the environment verl that is built"
    has = has_flash_attention(config)
    if python is not None:
        try:
            has = ask_python(python, _FIND, [], bool, env=variables_of(trainer, env), cwd="/")
        except ValueError as error:
            yield Check(NAME, "skipped", f"{python} cannot be asked: {error}")
            return
    if has is None:
        yield Check(NAME, "skipped", "there is no environment verl yet that could be asked")
    elif has:
        yield Check(NAME, "ok", f"{where} has flash_attn")
    elif with_critic(config):
        yield Check(
            NAME,
            "fail",
            f"{where} has no flash-attn: {CRITIC_NEEDS}",
            fix=f"set algorithm.adv_estimator: grpo, or another one without a critic; or {_GET}",
        )
    elif split > 1:
        text = (
            f"{SP_SIZE} is {split}, and {where} has no flash-attn: verl splits a sequence over GPUs only without "
            "padding, which needs it"
        )
        yield Check(NAME, "fail", text, fix=f"set {SP_SIZE}: 1, or {_GET}", patch={SP_SIZE: "1"})
    elif removes_padding or implementation in _FLASH:
        wants = f"{IMPLEMENTATION}={implementation}" if implementation in _FLASH else f"{REMOVE_PADDING}=True"
        keys = f"{REMOVE_PADDING}: false and +{IMPLEMENTATION}: sdpa"
        fix = f"in trainer.overrides, set {keys}, and {SP_SIZE}: 1; or {_GET}"
        yield Check(NAME, "fail", f"{where} has no flash-attn, which {wants} needs", fix=fix)
    else:
        yield Check(
            NAME, "ok", f"{where} has none; {implementation} with padding is planned, which needs none"
        )
