"""Rules for trials that go through sessions: changed histories, sub-agents, sessions without requests. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from liverl.agents.pods import LIST_PODS
from liverl.diagnose.catalogue.agents import agents_silent
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.diagnose.catalogue.groups import heads_of
from liverl.diagnose.catalogue.processes import waits_for_stalled
from liverl.diagnose.catalogue.services import RESTARTED_S
from liverl.diagnose.catalogue.step_shares import mostly_ended
from liverl.diagnose.tracker import FEWEST, GOING, SHOWN, Resolved, Window
from liverl.model import Evidence, SessionProcessEnd, StepTrials, Symptom, TrialHead
from liverl.observe.trials.session_facts import MOSTLY
from liverl.util.plural import quantity

# Share of a step's sessions (0..1) by which those with a changed history must have grown. Of 16 sessions of which one
# in ten changes its history, chance alone gives a share that is higher by 0.25 in less than one of 100 steps.
JUMP = 0.25
ENOUGH = 8  # ended sessions of a step; of fewer, chance alone makes such a jump
EARLIER = 3  # steps before, at least, to compare with; so many of the newest ones at most: twice that
# Seconds without a request. Claude Code's shell allows a command 600 s at most; a trial has 2400 s by default.
SILENT_SESSION_S = 600.0
# The same before the first reply: k8s.pod_startup_timeout is 1200 s by default, and then the agent is installed.
NOT_BEGUN_S = 1800.0


def rewrites_jump(window: Window) -> Iterator[Symptom | Resolved]:
    """In the newest step many more sessions than before sent a changed history: an earlier message of the conversation
    is not what it was. A step is judged once three quarters of its trials have ended.

    - the turn before the note has nearly ``vllm.max_model_length`` tokens -> the context is full, and the agent
      shortens it: raise that key, or let tools return less
    - the agent's program was updated since the earlier steps -> install the earlier version, or accept the new share
    - neither -> the agent edits old messages: compare two turns by ``liverl-tui trials show TRIAL --tokens``
    """
    now = window.now
    steps = [step for step in mostly_ended(now) if step.sessions >= ENOUGH]
    if len(steps) <= EARLIER:
        return
    step, *before = steps[: 1 + 2 * EARLIER]
    usual = median(map(_rewritten, before))
    if step.rewritten < FEWEST or _rewritten(step) - usual < JUMP:
        return
    changed = f"{step.rewritten} of {step.sessions}"
    others = step.finished - step.sessions
    answered = f" whose requests were recorded ({quantity(others, 'other')} had none)" if others > 0 else ""
    yield Symptom(
        id="rewrites_jump",
        severity="warning",
        title=f"{changed} agents of step {step.step} change their history",
        step=step.step,
        cause=f"{changed} trials of step {step.step}{answered} sent a conversation whose earlier messages differ "
        f"from those that they had sent before, in the steps before it {usual:.0%} did; each such change opens a row "
        "of its own, whose prompt is computed anew: more rows of shorter replies are trained, and prompts take longer",
        fix="open one of these trials and look at the note above the turn that begins a row 'changed history'; usual "
        "causes are a context that is full, so that the agent shortens it, an agent of another version, and an agent "
        "that edits old messages; raise vllm.max_model_length or lower the length of what tools return",
        evidence=_evidence(
            window,
            step,
            lambda head: bool(head.rewrites),
            lambda head: quantity(head.rewrites or 0, "change"),
        ),
    )


def sub_agents_dominate(window: Window) -> Iterator[Symptom | Resolved]:
    """Sub-agents sampled more than ``MOSTLY`` of the tokens of the newest step of which at least three quarters of the
    trials have ended: before, the share is that of the shortest ones."""
    step = _newest_ended(window)
    if step is None or step.sub_tokens <= MOSTLY * step.session_tokens:
        return
    share = step.sub_tokens / step.session_tokens
    yield Symptom(
        id="sub_agents_dominate",
        severity="warning",
        title=f"sub-agents sample {share:.0%} of the tokens of step {step.step}",
        step=step.step,
        cause=f"{step.sub_tokens:,} of {step.session_tokens:,} tokens that were sampled in {_of_all(step)} trials "
        f"of step {step.step} are in rows of kind sub: each of them is trained with the reward of its whole trial, "
        "which judges the main conversation, and the limits on turns and length do not hold for it",
        fix="open one of these trials; if a row of kind sub is the main conversation, the system prompt of the main "
        "agent differs from request to request (a date at its beginning, for example): lower "
        "session_proxy.main_agent_prefix_match to the number of characters that stay the same. If they are real "
        "sub-agents, disallow or limit them in the agent's settings",
        evidence=_evidence(
            window,
            step,
            lambda head: "mostly_sub" in head.flags,
            lambda head: f"{head.sub_tokens:,} of {head.completion_tokens:,} tokens by sub-agents",
        ),
    )


def asides_dominate(window: Window) -> Iterator[Symptom | Resolved]:
    """More than ``MOSTLY`` of the tokens of the newest step, of which at least three quarters of the trials have ended,
    belong to side questions, not to the main conversations. Tokens of side questions are not trained."""
    step = _newest_ended(window)
    if step is None or step.aside_tokens <= MOSTLY * step.session_tokens:
        return
    share = step.aside_tokens / step.session_tokens
    yield Symptom(
        id="asides_dominate",
        severity="warning",
        title=f"{share:.0%} of the tokens of step {step.step} are side questions",
        step=step.step,
        cause=f"{step.aside_tokens:,} of {step.session_tokens:,} tokens that were sampled in {_of_all(step)} trials "
        f"of step {step.step} look as if they were asked for beside the main conversation (single replies without a "
        "tool call, which share nothing with it), and are not trained",
        fix="open one of these trials. If its agent writes every prompt anew, without a system prompt, give it one, or "
        "set session_proxy.asides to train; if it asks several times and takes one reply, nothing is wrong: with "
        "train the other replies are trained, too",
        evidence=_evidence(
            window,
            step,
            lambda head: head.aside_tokens > MOSTLY * head.completion_tokens,
            lambda head: (
                f"{head.aside_tokens:,} of {head.completion_tokens:,} tokens beside the conversation"
            ),
        ),
    )


def tokens_differ(window: Window) -> Iterator[Symptom | Resolved]:
    """For the same conversation the sessions and a replica made different tokens of the prompt. The cause says whether
    any row is in question. None is if the two differed from the beginning, since the model's folder and the replica's
    chat template do not match.

    - you changed the model's folder or the chat template of a replica -> give the replica and ``model.model_path``
      the same, then ``liverl-tui restart sessions``
    - you do not know why they differ -> leave all tokens to the replicas: ``liverl-tui up --resume RUN --set
      session_proxy.tokenizer=engine``, after ``liverl-tui stop``
    - the severity is info, and the cause says that no turn was sampled from such a prompt -> no row is in question:
      only the replica has more work
    - the cause counts turns of trials that had ended -> they may be trained wrongly: go back to the checkpoint before
      this step, if they matter to you
    """
    now = window.now
    routes = [] if now.sessions is None else [route for route in now.sessions.tokenizers if route.differs]
    if not routes:
        return
    doubted, ended = sum(route.doubted for route in routes), sum(route.ended for route in routes)
    asked = doubted or ended
    told = (
        [f"{doubted} turns of open trials since the last comparison that agreed are not trained"]
        if doubted
        else []
    )
    if ended:
        told.append(f"{ended} turns of trials that had ended before may be trained with such a prompt")
    yield Symptom(
        id="tokens_differ",
        severity="warning" if asked else "info",
        title="the sessions' tokens differ from the replica's",
        cause="a prompt that the sessions made with the model's tokenizer.json and chat template has other tokens than "
        "the replica makes of the same conversation; the replica makes all tokens again, which costs its API server "
        f"more; {'; '.join(told) or 'no turn was sampled from such a prompt'}",
        fix="compare the replica's model folder and chat template with those of model.model_path, and after a "
        "change restart the service sessions, which compares anew; or leave all tokens to the replicas, as by default "
        "(only session_proxy.tokenizer auto makes them here): stop the run, then liverl-tui up --resume RUN --set "
        "session_proxy.tokenizer=engine"
        + (
            f"; if rows of ended trials matter, resume from the checkpoint before this step: {GO_BACK}"
            if ended
            else ""
        ),
        evidence=tuple(Evidence(f"{route.model}: {route.differs}") for route in routes)[:SHOWN],
    )


def session_process_ended(window: Window) -> Iterator[Symptom | Resolved]:
    """The sessions run in several processes, and one of them ended by itself in the last ``RESTARTED_S`` seconds. The
    others went on, and it is started again. Agents repeat the requests that it had.

    - the title says ``SIGKILL``, and ``dmesg`` names the process as killed for memory -> give the run more memory, or
      set ``session_proxy.processes`` lower
    - the title says ``SIGKILL``, and ``dmesg`` does not -> somebody or a batch system killed it: ask them
    - the title says anything else -> ``liverl-tui logs sessions -n 50`` has the error: please report it
    """
    now = window.now
    every = () if now.sessions is None or now.state not in GOING else now.sessions.process_ends
    ends = [end for end in every if now.at - end.since < RESTARTED_S]
    if not ends:
        return
    newest = ends[-1]
    killed = any(end.how == "SIGKILL" for end in ends)
    which = f"process {newest.process} of {newest.of}" if len(ends) == 1 else f"{len(ends)} processes"
    yield Symptom(
        id="session_process_ended",
        severity="warning",
        title=f"{which} of sessions ended ({newest.how[:20]})",
        cause="it is started again and reads the journals of its sessions; requests that it had are sent again by "
        f"their agents, and what was recorded is not sampled twice; {_reopened(newest)}",
        fix="read the end of the log of sessions"
        + (
            "; SIGKILL without a line before it is usually the kernel's OOM killer: look at dmesg, and give the run "
            "more memory or the sessions fewer processes (session_proxy.processes)"
            if killed
            else ""
        ),
        evidence=tuple(
            Evidence(f"process {end.process} of {end.of}: {end.how}; {_reopened(end)}")
            for end in reversed(ends)
        )[:SHOWN],
        since=newest.since,
    )


def _reopened(end: SessionProcessEnd) -> str:
    had = f"it had {end.sessions} open session{'' if end.sessions == 1 else 's'}"
    if end.reopened is None:
        return f"{had}, which wait for it"
    return f"{had}, and {end.reopened} {'was' if end.reopened == 1 else 'were'} opened again"


def session_silent(window: Window) -> Iterator[Symptom | Resolved]:
    """Open sessions have had no request for ``SILENT_SESSION_S``, or none at all for ``NOT_BEGUN_S``, although the
    sessions serve. Where all agents are silent, ``agents_silent`` says so."""
    now = window.now
    carrier = now.carrier_service
    if now.sessions is None or now.state != "running" or carrier is None or carrier.state != "ready":
        return
    if waits_for_stalled(now) or any(True for _ in agents_silent(window)):
        return
    ended = {head.name for head in now.trials.newest if head.state != "running"}
    limits = {True: SILENT_SESSION_S, False: NOT_BEGUN_S}
    silent = [s for s in now.sessions.silent if now.at - s.since >= limits[s.begun] and s.id not in ended]
    if not silent:
        return
    reported = len(silent) == len(now.sessions.silent) and now.sessions.open > len(silent)
    number = f"at least {len(silent)}" if reported else str(len(silent))
    paths = {head.name: head.path for head in now.trials.newest}
    yield Symptom(
        id="session_silent",
        severity="warning",
        title=f"{number} trial{'s send' if len(silent) > 1 else ' sends'} no requests",
        cause=f"{number} of {now.sessions.open} open sessions had no request for more than {SILENT_SESSION_S / 60:.0f} "
        "minutes: the agent of such a trial has died, waits for a tool that does not return, or its sandbox cannot "
        "reach the sessions; the step waits until the trial times out",
        fix=f"open the trial and look at its last tool call; check its sandbox (docker ps, or {LIST_PODS}); "
        "harbor_agent.override_timeout_sec ends a stuck trial: lower it to end them earlier",
        evidence=tuple(
            Evidence(f"{paths.get(one.id, one.id)}: no request for {(now.at - one.since) / 60:.0f} minutes")
            for one in silent[:SHOWN]
        ),
        since=min(one.since for one in silent),
    )


def _newest_ended(window: Window) -> StepTrials | None:
    """The newest step with at least ``FEWEST`` ended sessions, of which most trials have ended."""
    return next((step for step in mostly_ended(window.now) if step.sessions >= FEWEST), None)


def _of_all(step: StepTrials) -> str:
    """How many trials of a step were judged: ``58 of 64``, or ``64``."""
    return str(step.sessions) if step.sessions == step.total else f"{step.sessions} of {step.total}"


def _rewritten(step: StepTrials) -> float:
    return step.rewritten / step.sessions


def _evidence(
    window: Window, step: StepTrials, which: Callable[[TrialHead], bool], words: Callable[[TrialHead], str]
) -> tuple[Evidence, ...]:
    """The first trials of a step that ``which`` is true of, each with ``words``."""
    heads = [head for head in heads_of(window.now, step) if which(head)]
    return tuple(Evidence(f"{head.path}: {words(head)}") for head in heads[:SHOWN])
