"""Rules for the agents: whether they call tools, reach the policy, and send requests at all. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from liverl.agents.endings import NOT_AS_MEANT, cause_words, counted
from liverl.agents.pods import LIST_PODS
from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.groups import heads_of
from liverl.diagnose.catalogue.processes import waits_for_stalled
from liverl.diagnose.catalogue.sandboxes import all_fail_in_setup
from liverl.diagnose.catalogue.step_shares import whole
from liverl.diagnose.catalogue.trial_evidence import by_reason
from liverl.diagnose.titles import capital
from liverl.diagnose.tracker import FEWEST, SHOWN, Resolved, RunContext, Window
from liverl.engines.tool_formats import PARSER_KEY, readers_of
from liverl.model import Cause, Evidence, Snapshot, Symptom, TrialHead
from liverl.observe.trials.engine_parser import VARIABLES, EngineParser
from liverl.util.plural import plural, quantity

RECENT_STEPS = 2  # the step that runs, and the one before: trials that failed in it
UNTRAINED_SHARE = 0.1  # of a step's trials: more than that changes what a step learns
FAILED_SHARE = 0.1  # of a step's trials; fewer are usual with real sandboxes, and worth a note only
NO_TOKENS = "verl-no-tokens"  # signature of a batch in which no trial had a token
EARLY_SHARE = 0.25  # of a step's trials that have called a tool, or ended without a call: a step takes long
SILENT_S = 180.0  # an estimate: longer than most tool calls of a batch of trials take


@silent_while_broken
def zero_tool_calls(window: Window) -> Iterator[Symptom | Resolved]:
    """At least half of the trials called no tool, in the newest step in which enough trials have ended, and a quarter
    have called one or ended without. This is counted from the trials' files. The usual cause is that the engine's
    parser does not read what the model writes. The key is ``model.tool_parser``: qwen3_coder, hermes or another one of
    the engine; ``auto`` takes the parser of the model's own chat template. An engine of your own has the option
    ``--tool-call-parser``.

    - the title ends with ``model writes FORMAT, parser is ...`` or ``the parser does not read that``; the texts hold
      tags such as ``<tool_call>`` or ``<function=`` (``liverl-tui trials show TRIAL``) -> the parser is another
      format's: ``liverl-tui fix`` sets ``model.tool_parser``; an engine of your own is started with
      ``--tool-call-parser``
    - the title ends with ``cannot read what the model writes``, and the last turn has the finish ``length`` -> the
      call is cut off: raise ``training.max_response_length``
    - the title ends with ``cannot read what the model writes``, and no turn is cut off -> the calls are not well
      formed, as of a small model or one that has gone astray: compare with a trial of an earlier step, and go back to
      a checkpoint before it, or take a stronger model
    - the title ends with ``model writes FORMAT``, and names no parser -> no parser of the engine reads that format:
      set another ``model.model_path``, and start a new run
    - the title says no more; the texts hold no tags, and ``litellm-trajectory.jsonl`` in the trial's folder has no
      list ``tools`` -> the tools are not offered: set ``harbor_agent.disable_tool_calls`` to false, and see that the
      agent sends its tools
    - the texts hold no tags, the record has ``tools``, and the prompt's tokens do not name them (``liverl-tui trials
      show TRIAL --tokens``) -> the chat template leaves tools out: take a model whose template has them, mostly the
      instruct version
    - the texts hold no tags, and the tools are in the prompt -> the model answers without them: say in the prompt
      that it must use them, give trials without a tool call a lower reward, or train a model that was tuned for tools
    - the rewards are good all the same -> the tasks need no tool: mute the alert with ``diagnosis.mute:
      [zero_tool_calls]``
    """
    now = window.now
    # The steps of an earlier attempt say nothing about the present one, which may have another parser.
    heads = now.trials.newest
    before = now.trials.steps_before(now.attempt, now.started_at)
    changed = _parser_changed(now)
    other = max(
        (h.step or 0 for h in heads if h.updated_at < changed), default=-1
    )  # the newest that had another
    steps = (s for s in now.trials.steps if s.step not in before)
    steps = (s for s in steps if (s.step or 0) > other)
    step = next((s for s in steps if max(s.finished - s.dumped, s.zero_tool_calls) >= FEWEST), None)
    if step is None:
        if changed:
            yield Resolved("zero_tool_calls")  # until trials with the new parser say otherwise
        return
    without, judged = step.zero_tool_calls, step.judged
    if not without or 2 * without < judged:
        return  # trials that ended without a turn say nothing about tool calls
    every_one = whole(now, step)
    if (step.running or step.total < every_one) and judged < EARLY_SHARE * every_one:
        return  # those without a call end first, while others still think about their first one
    every = without == judged
    heads = tuple(h for h in heads if h.step == step.step and not h.earlier and "zero_tool_calls" in h.flags)
    recorded = " whose answers are recorded" if step.unrecorded else ""
    counted = f"{'all' if every else f'{without} of'} {judged} trials of step {step.step}{recorded} made no tool call"
    found = _ParserFault.of(heads, window.beside)
    yield Symptom(
        id="zero_tool_calls",
        severity="critical" if every else "warning",
        title=f"trials call no tool{found.title}",
        cause=f"{counted}: {found.cause}",
        fix=found.fix,
        evidence=tuple(Evidence(head.path) for head in heads[:SHOWN]),
        since=min((head.updated_at for head in heads), default=None),
        patch=found.patch,
        guess=found.guess,
    )


def _parser_changed(now: Snapshot) -> float:
    """When the last replica began to serve with a parser that was changed in this attempt; 0 if none was."""
    changes = [c.at for c in now.changes if c.key == PARSER_KEY and c.attempt == now.attempt and c.at]
    return max([*changes, *(r.since or 0.0 for r in now.replicas.items)]) if changes else 0.0


def with_trials(cause: Cause, alert: Symptom | None) -> Cause:
    """``cause``, if it is that no trial had a token, with what the alert on tool calls found in the trials: the
    trainer's log does not show which parser fits."""
    if alert is None or alert.id != "zero_tool_calls" or cause.id != NO_TOKENS:
        return cause
    return msgspec.structs.replace(
        cause, why=capital(alert.cause), fix=alert.fix, patch=alert.patch, guess=alert.guess
    )


class _ParserFault(NamedTuple):
    """Why trials may call no tool, by the format that most of them write. ``title``: what follows the title;
    ``guess``: no more than half of the trials show that format."""

    title: str
    cause: str
    fix: str
    patch: dict[str, str]
    guess: bool = False

    @classmethod
    def of(cls, heads: Sequence[TrialHead], beside: RunContext) -> _ParserFault:
        """``beside``: with the engine's parser, None if it is unknown, and where it is set."""
        formats = Counter(head.writes for head in heads if head.writes is not None)
        written, count = formats.most_common(1)[0] if formats else ("", 0)
        readers, parser = readers_of(written), beside.tool_parser
        setting = _ParserSetting(parser, beside.parser_set, beside.foreign)
        texts = f"what the model wrote in {count} of them looks like {written}"
        if parser is not None and parser in readers:
            return cls(
                f": {parser} cannot read what the model writes",
                f"{texts}, which {parser} reads: the calls may be cut off or not well formed",
                "open one of the trials and look at the end of its last turn; if it was cut off, raise the limit of "
                "tokens per response",
                {},
            )
        if readers:
            return cls(
                f": model writes {written}, {setting.in_use}",
                f"{texts}, which the parser {' or '.join(readers)} reads; {setting.present}",
                setting.change_to(readers[0]),
                {PARSER_KEY: readers[0]} if setting.by_key else {},
                2 * count
                <= len(heads),  # each of the readers reads it; the format itself must be that of most
            )
        model = "train a model" if beside.foreign else "set model.model_path to a model"
        if written:
            return cls(
                f": model writes {written}",
                f"{texts}, which no parser reads",
                f"{model} that writes a format of the engine's parsers, and start a new run",
                {},
            )
        return cls(
            "",
            "their texts contain nothing that looks like one: the prompt does not offer the tools, or the model "
            "answers without them",
            "open one of the trials and look whether its first turn offers the tools; harbor_agent.disable_tool_calls "
            f"must be false; {setting.name} must be that of the model (qwen3_coder: XML, hermes: JSON)",
            {},
        )


class _ParserSetting(NamedTuple):
    """The engine's parser, None if it is unknown, and where it is set. ``foreign``: the run is none of ours."""

    parser: str | None
    set_at: EngineParser
    foreign: bool

    @property
    def by_key(self) -> bool:
        """Whether a configuration key of ours sets it."""
        return not self.foreign and (not self.set_at.place or self.set_at.variable)

    @property
    def name(self) -> str:
        """What sets it."""
        return "the engine's --tool-call-parser" if self.foreign else PARSER_KEY

    @property
    def in_use(self) -> str:
        """What is in use, for a title."""
        if self.parser is None:
            return "parser unknown" if self.foreign else "the parser does not read that"
        return f"parser is {self.parser}"

    @property
    def present(self) -> str:
        """What is in use, and what sets it."""
        if self.parser is not None and self.set_at.place:
            return f"{self.set_at.place} sets {self.parser}"
        if self.parser is not None:
            return f"{self.name} is {self.parser}"
        return (
            "which one the engine uses is not known" if self.foreign else f"{PARSER_KEY} does not read that"
        )

    def change_to(self, parser: str) -> str:
        """How to set another one."""
        place = self.set_at.place
        if self.by_key:
            return f"set {PARSER_KEY}={parser}: liverl-tui fix does it"
        if not self.foreign:
            return (
                f"replace it by {parser} in {place}, and restart the script: no configuration key of this run changes "
                "that line"
            )
        if not place:
            return f"start the engine with --tool-call-parser {parser}, and then the script again"
        variable = f"set {VARIABLES[0]}={parser} for the script, or " if self.set_at.variable else ""
        return f"{variable}replace it by {parser} in {place}, and start the script again"


def calls_are_read(heads: Iterable[TrialHead], since: float = 0.0) -> bool:
    """Whether most trials of the newest two steps that were offered tools, and changed after ``since`` (Unix seconds),
    called one: lines of an engine about calls that it could not read are slips of the model then, and its parser fits.
    """
    known = [one for one in heads if not one.earlier and one.turns and one.updated_at >= since]
    newest = max((one.step or 0 for one in known), default=0)
    recent = (one for one in known if (one.step or 0) >= newest - 1)
    judged = [one for one in recent if one.tool_calls or one.tools_offered is not False]
    return len(judged) >= FEWEST and 2 * sum(one.tool_calls > 0 for one in judged) > len(judged)


def trials_failed(window: Window) -> Iterator[Symptom | Resolved]:
    """In the newest step with failures, some trials ended with an exception. verl goes on without them: their rows are
    missing from the batch, and verl fills it up with rows that have no tokens. It is not raised if all trials failed
    in their setup: ``trials_fail_in_setup`` says that."""
    step = next((s for s in window.now.trials.steps[:RECENT_STEPS] if s.failures), None)
    if step is None or step.finished < FEWEST or all_fail_in_setup(step):
        return
    failed = sum(step.failures.values())
    heads = [head for head in heads_of(window.now, step) if head.failure]
    (kind, count), *_ = sorted(step.failures.items(), key=lambda item: -item[1])
    told = Counter(h.failure for h in heads if h.failure.partition(":")[0] == kind).most_common(1)
    words = kind
    if told:
        same, seen = told[0][1], sum(h.failure.partition(":")[0] == kind for h in heads)
        words = told[0][0] if same == seen else f"{kind}, most often {told[0][0]}"
    others = f"; {failed - count} failed for other reasons" if failed > count else ""
    # Of all that have begun: those that fail at once are the first to end.
    share = failed / max(1, step.total)
    so_far = f" that have ended, of {step.total} in all," if step.running else ""
    yield Symptom(
        id="trials_failed",
        severity="critical" if share == 1 else "warning" if share >= FAILED_SHARE else "info",
        title=f"trials fail: {kind}",
        cause=f"{failed} of {step.finished} trials of step {step.step}{so_far} ended with an exception, "
        f"{count} of them with {words}{others}",
        fix="open one of these trials: result.json in its directory has the whole traceback, and the log of an agent "
        "that is a program what it printed before",
        evidence=by_reason(heads),
        since=min((head.updated_at for head in heads), default=None),
    )


def trials_not_trained(window: Window) -> Iterator[Symptom | Resolved]:
    """More than ``UNTRAINED_SHARE`` of a step's trials were masked or dropped, or trained with reward 0, because of how
    they ended."""
    steps = (s for s in window.now.trials.steps[:RECENT_STEPS] if s.finished >= FEWEST)
    step = next(
        (s for s in steps if sum(s.ended(NOT_AS_MEANT).values()) > UNTRAINED_SHARE * whole(window.now, s)),
        None,
    )
    if step is None:
        return
    causes = step.ended(NOT_AS_MEANT)
    number = sum(causes.values())
    outcomes: dict[str, int] = {outcome: sum(step.ended((outcome,)).values()) for outcome in NOT_AS_MEANT}
    why = ", ".join(f"{cause_words(cause)} in {trials}" for cause, trials in causes.items())
    told = [head for head in heads_of(window.now, step) if head.outcome in NOT_AS_MEANT]
    yield Symptom(
        id="trials_not_trained",
        severity="critical" if number == whole(window.now, step) else "warning",
        title="trials are not trained with their reward",
        cause=f"{number} of {step.total} trials of step {step.step} did not end well ({why}): {counted(outcomes)}",
        fix="open one of these trials: its page says why it ended; agent.endings decides what becomes of such trials",
        evidence=by_reason(told),
        since=min((head.updated_at for head in told), default=None),
    )


def trained_past_the_proxy(window: Window) -> Iterator[Symptom | Resolved]:
    """verl's own agent loops ran trials. They call verl's replicas directly, as Ray actors, so neither the proxy nor
    the sessions see a request. Such trials are known only from the rows that verl dumps; without a dump the run makes
    steps and shows no trials."""
    now, trials = window.now, window.now.trials
    carries = now.service(now.carrier)
    # None of a launch script's
    ours = now.topology == "verl" and carries is not None and carries.owner == "ours"
    unseen = bool(now.step) and not trials.total and not now.traffic.requests
    if not ours or not (trials.dumped or unseen):
        return
    carrier = now.carrier_words.name
    done = f"{quantity(now.step or 0, 'step')} {'is' if now.step == 1 else 'are'} done"
    none = f"{done}, but {carrier} carried no request and there are no trials to show"
    some = f"{carrier} carried no request of {trials.dumped} of {trials.total} trials"
    yield Symptom(
        id="trained_past_the_proxy",
        severity="info",
        title="verl's own agent loops run the trials"
        if trials.dumped == trials.total
        else "verl's own agent loops run some of the trials",
        cause=f"{some if trials.dumped else none}: single_turn_agent and tool_agent of verl's call the replicas "
        "directly",
        fix="to see their turns, set verl.agent_loop: auto and leave out the column agent_name; reward.function, "
        "agent.tools and agent.functions are used as before; until then verl's dumps in rollouts/ are all "
        "that is known of these trials",
    )


def agents_silent(window: Window) -> Iterator[Symptom | Resolved]:
    """Trials run, replicas are idle, and no request arrives. It is not raised at once: some trials are always between
    two turns, and the last few of a step may all run a long tool."""
    now, before = window.now, window.before
    step = now.trials.steps[0] if now.trials.steps else None
    if before is None or step is None or now.state != "running" or step.step <= (now.step or 0):
        return
    if waits_for_stalled(now):
        return
    heads = [
        head for head in heads_of(now, step) if head.state == "running" and head.updated_at >= now.started_at
    ]
    unfinished = min(len(heads), step.running)
    if unfinished < FEWEST or 4 * step.running < step.total:
        return
    serving = [r for r in now.replicas.items if r.state == "ready" and r.listed]
    awake = all(r.activity not in ("asleep", "waking", "updating") for r in serving)
    idle = bool(serving) and awake and all(r.engine.running == 0 and not r.engine.waiting for r in serving)
    requests = now.traffic.requests
    if not idle or requests is None or requests != before.traffic.requests:
        return
    yield Symptom(
        id="agents_silent",
        severity="warning",
        title="the agents send no requests",
        cause=f"{unfinished} of {step.total} trials of step {step.step} are running, but none has sent a request, and "
        f"{len(serving)} replicas are idle: the sandboxes or the tools may be stuck",
        fix=f"check the sandboxes ({LIST_PODS}, or docker ps) and the last tool call "
        "of these trials; each trial times out after harbor_agent.override_timeout_sec seconds: lower that "
        "to end stuck trials earlier",
        evidence=tuple(Evidence(f"{h.path}: {h.turns} turns", value=h.turns) for h in heads[:SHOWN]),
    )


def trials_do_not_begin(window: Window) -> Iterator[Symptom | Resolved]:
    """All of verl's replicas have been receiving new weights, or have them, for ``SILENT_S`` and get no request.
    Replicas that sleep while the trainer trains are not meant."""
    now = window.now
    if waits_for_stalled(now):
        return
    ready = [r for r in now.replicas.items if r.state == "ready"]
    waits = [r.activity_since for r in ready if r.activity == "updating" and r.activity_since is not None]
    if now.state != "running" or not ready or len(waits) < len(ready) or now.at - max(waits) < SILENT_S:
        return
    yield Symptom(
        id="trials_do_not_begin",
        severity="warning",
        title="no trial starts",
        cause=f"for {now.at - max(waits):.0f} s {len(ready)} replicas have been receiving new weights or "
        "waiting for the first request after that: the transfer or the agent loop is slow or stuck",
        fix="check the last lines of the trainer's log; run py-spy dump --pid on ray::AgentLoopWorker and on "
        "ray::TaskRunner to see where they are stuck",
        evidence=tuple(
            Evidence(f"{r.name}: {r.activity}, {r.engine.running or 0:.0f} running") for r in ready[:SHOWN]
        ),
        since=max(waits),
    )


def trials_unattributed(window: Window) -> Iterator[Symptom | Resolved]:
    """Since the previous snapshot, requests arrived that name no trial."""
    before, proxy = window.before, window.now.proxy
    if before is None or before.proxy.generation != proxy.generation:
        return
    if proxy.unattributed > before.proxy.unattributed:
        yield Symptom(
            id="trials_unattributed",
            severity="info",
            title="requests without a trial name",
            cause=f"{_so_far(proxy.unattributed)} named no trial and {_were(proxy.unattributed)} not counted for any "
            "trial",
            fix="give each trial its own API key (<run key>.<trial>), or send the header x-litellm-routing-key",
            evidence=(Evidence("", log="trials/_unattributed/litellm-trajectory.jsonl"),),
        )


def model_unknown(window: Window) -> Iterator[Symptom | Resolved]:
    """Since the previous snapshot, requests arrived for a model that the proxy does not have.

    - the alert lists names -> set the agents' model name to one of them
    - it lists none -> ``GET /v1/models`` at the agents' base URL lists what is served
    """
    proxy = window.now.proxy
    if window.proxy_counted(lambda proxy: proxy.unknown):
        names = [f"'{name}'" for name in proxy.unknown_models[:SHOWN]] or ["a model"]
        requested = ", ".join(names)
        served = window.beside.aliases
        yield Symptom(
            id="model_unknown",
            severity="warning",
            title=f"agents request {names[0]}, which is not served",
            cause=f"{_so_far(proxy.unknown)} asked for {requested} and {_were(proxy.unknown)} rejected; their trials "
            "end as if the model had not answered",
            fix=f"set the agents' model name to one of: {', '.join(served)}"
            if served
            else "set the agents' model name to a model that is served",
            evidence=(Evidence(f"{proxy.config}: model_list"),) if proxy.config else (),
        )


def request_too_large(window: Window) -> Iterator[Symptom | Resolved]:
    """Since the previous snapshot, requests arrived whose body is too large."""
    proxy = window.now.proxy
    if window.proxy_counted(lambda proxy: proxy.too_large):
        yield Symptom(
            id="request_too_large",
            severity="warning",
            title="requests are too large",
            cause=f"{_so_far(proxy.too_large)} {_were(proxy.too_large)} answered with 413: more bytes than "
            "proxy.max_body_bytes allows; their trials fail",
            fix="shorten what the agents send, or raise proxy.max_body_bytes and resume the run",
            evidence=(Evidence(proxy.address),) if proxy.address else (),
        )


def records_lost(window: Window) -> Iterator[Symptom | Resolved]:
    """Since the previous snapshot, records of requests could not be written."""
    proxy = window.now.proxy
    if window.proxy_counted(lambda proxy: proxy.unrecorded):
        yield Symptom(
            id="records_lost",
            severity="warning",
            title="turns are missing in the trials' records",
            cause=f"{_so_far(proxy.unrecorded)} {_were(proxy.unrecorded)} answered, but no record could be written",
            fix="remove the cause that the error names; the missing records cannot be restored",
            evidence=(Evidence(proxy.record_error or "the error is in the proxy's log"),),
        )


def key_refused(window: Window) -> Iterator[Symptom | Resolved]:
    """Since the previous snapshot, requests arrived without this run's key."""
    proxy = window.now.proxy
    if window.proxy_counted(lambda proxy: proxy.refused):
        yield Symptom(
            id="key_refused",
            severity="warning",
            title="requests have no valid key",
            cause=f"{_so_far(proxy.refused)} {_were(proxy.refused)} rejected for lack of a valid key: the agents "
            f"belong to another run or were "
            "given another key",
            fix="give the agents the key in secrets/run_key as their API key, or <that key>.<trial>",
            evidence=(Evidence(proxy.address),) if proxy.address else (),
        )


def _so_far(number: float) -> str:
    return f"{quantity(round(number), 'request')} so far"


def _were(number: float) -> str:
    return plural(round(number), "was", "were")
