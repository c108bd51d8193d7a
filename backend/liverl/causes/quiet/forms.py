"""What the lines of trainers and launch scripts look like that tell of a training: the only place that knows. Pure."""

from __future__ import annotations

import re

from liverl.util.late_pattern import late_pattern

TRAINING = r"training(?: progress| steps?)?|train(?: steps?)?|(?:global )?steps?|iterations?"
WORDS = rf"(?:{TRAINING}|episodes?(?: \[\d+/\d+\])?)"
# tqdm's bars of a training; those of downloads and of maps over a data set have other names
BAR = late_pattern(
    rf"(?:^|[\s\])])({WORDS})\s{{0,3}}:\s{{0,4}}\d{{1,3}}%\|"
    r"[^|\n]{0,200}\|\s{0,3}(\d{1,12})/(\d{1,12}) \["
    r"([^\]\r\n]{0,80})",
    re.IGNORECASE,
)
LOSSES = late_pattern(r"^\{'(?:loss|rewards?)': [^\n]*'epoch': ")
RATE = late_pattern(r"([\d.]{1,9})(s/it|it/s)")
# A bar without a name, as transformers' Trainer draws it. It counts only if its total is the announced one, or if the
# log has the numbers that this Trainer prints.
NAMELESS = late_pattern(r"\d{1,3}%\|[^|\n]{0,200}\|\s{0,3}(\d{1,12})/(\d{1,12}) \[")
# "step 3 | loss 0.5", "global_step=3 reward=0.1", of a trainer that prints neither bar nor verl's lines; but not
# "trial 7 of step 3: 80 tokens"
PLAIN_STEP = late_pattern(
    r"(?:^|(?<!\bof)(?<!\bin)(?<!\bat)(?<!\bto)(?<!\bfor)[\s\[(|])"
    r"(?:(?:global|train(?:ing)?)[ _])?(?:step|iteration|iter)\s{0,3}[:=#]?\s{0,8}(\d{1,12})\b"
    r"(?!\s{0,3}[/%])",
    re.IGNORECASE,
)
# "step 25/100", "iteration      100/    1000 | consumed samples", "Step 25 of 100"
COUNTER = late_pattern(
    r"(?:^|[\s\[(|])(?:(?:global|train(?:ing)?)[ _])?(?:step|iteration|iter)\s{0,3}[:=#]?\s{0,8}"
    r"(\d{1,12})\s{0,8}(?:/|of)\s{0,8}(\d{1,12})\b",
    re.IGNORECASE,
)
# verl before 0.2, and what was made of it, as a step begins: "epoch 0, step 12"
EPOCH_STEP = late_pattern(r"^epoch \d{1,6}, step (\d{1,12})$")
OTHER_COUNTS = late_pattern(
    r"\b(?:eval|valid|test|warm|download|load|captur|epoch|prefill|decod|build|install|setup)", re.IGNORECASE
)
MEASURED = late_pattern(
    r"\b(?:loss|reward|lr|learning[ _]rate|grad[ _]norm|score|kl|acc|accuracy|consumed|elapsed|it/s|s/it|tokens)\b",
    re.IGNORECASE,
)
STEP = late_pattern(r"(?:^|[\s)\]])step:(\d{1,18}) - (\S[^\r\n]*)")
TOTAL = late_pattern(
    r"Total (?:number of )?(?:training|train|optimization) steps\s{0,3}[:=]\s{0,3}([\d,]{1,18})",
    re.IGNORECASE,
)
# verl's fully asynchronous trainer: its steps are versions of the parameters. Its "Total training steps" are prompts of
# all epochs, its "global_steps" updates.
VERSIONS = late_pattern(r"\btotal_train_steps:?\s{1,3}(\d{1,12})\b")
KEY = late_pattern(
    r"\b(total_training_steps|total_epochs|val_only)['\"]?(=|\s{0,3}:\s{0,3})['\"]?([A-Za-z0-9_.-]{1,20})"
)
LOADER = late_pattern(r"Size of train dataloader:\s{0,3}(\d{1,12})")
BEGAN = late_pattern(
    r"[Ss]etting global step to \d{1,18}, current_param_version to (\d{1,18})|"
    r"[Ss]etting global step to (\d{1,18})|(Training from scratch)"
)
FROM = late_pattern(r"(?:Resuming from|Load from checkpoint folder:|Found checkpoint:) (\S+?),?(?:\s|$)")
SERVER = late_pattern(r"Job submission server address: (\S+)")
SUBMITTED = late_pattern(r"Job '([^'\s]{1,200})' submitted successfully")
ENDED = late_pattern(r"Job '([^'\s]{1,200})' (succeeded|failed|was stopped)")
SLURM = late_pattern(r"^Submitted batch job (\d{1,12})\b")
KUBERNETES = late_pattern(r"^([\w-]{0,20}job(?:\.[\w.-]{1,60})?/[\w.-]{1,200}) created\b")
# kubectl removed it: it does not go on. "job.batch/train-7 deleted", "job.batch.volcano.sh "train-7" deleted"
REMOVED = late_pattern(r'^([\w-]{0,20}job(?:\.[\w.-]{1,60})?)[/ ]"?([\w.-]{1,200}?)"? deleted\b')
BACKGROUND = late_pattern(
    r"^nohup: (?:ignoring input|appending output)|^\++ (?:nohup|setsid|disown|tmux new\S* -d|screen -d)\b"
)
USED_UP = late_pattern(
    r"\bdata(?:set|loader| loader)? (?:is |was |has been )?(?:exhausted|used up)|"
    r"\bno more (?:data|batches|samples|prompts)\b|\bout of (?:data|samples|prompts)\b",
    re.IGNORECASE,
)
# A trainer says that it has made all its steps.
FINISHED = late_pattern(
    r"Final validation metrics|training finished at global step|"
    r"\btraining (?:has )?(?:is |been )?(?:completed?|finished|done)\b(?! step)",
    re.IGNORECASE,
)
# wandb says "View run at" at its beginning.
CLOSED = late_pattern(
    r"wandb: (?:Run summary|Run history|finished|Synced|Find logs at|\U0001f680 View run (?!at ))|"
    r"^real\s+\d+m|^Job '[^'\n]{1,200}' succeeded"
)
# What a script prints when its trainer has ended. A model's commands print it too: only lines without the prefix of
# an actor and without the level of a logger count.
EXITED = late_pattern(
    r"\b(?:(?:exit(?:ed)?|finished)(?: with)?(?: exit)?(?: code| status)?|"
    r"(?:completed|done|ended) with (?:exit )?(?:code|status))[ :=]{1,3}0\b(?![.\d/%])",
    re.IGNORECASE,
)
FAILED = late_pattern(
    r"\b(?:exit(?:ed)?(?: with)?(?: non-zero)?(?: exit)?(?: code| status)?|"
    r"(?:finished|completed|done|ended|failed) with (?:non-zero )?(?:exit )?(?:code|status))"
    r"[ :=]{1,3}[1-9]\d{0,2}\b(?![.\d/%])|\*\*\* \[[^\]\n]{1,120}\] Error [1-9]",
    re.IGNORECASE,
)
LOGGED = late_pattern(r"\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR)\b")
# A line that ``EXITED`` or ``FAILED`` matches has one of these words. A digit in it says whether it was a success.
DECIDED_BY_DIGITS = late_pattern(rb"exit|code|status|inished|\*\*\* \[", re.IGNORECASE)
# verl prints it in its last step, which its bar may not show any more.
FINAL = "Final validation metrics"
TRAINS = late_pattern(
    r"train and validate dataloader initialized|'actor_rollout_ref'|Initial validation metrics|"
    r"\bmain_(?:ppo|dapo)\b|\bverl\.trainer\b|\bTrainRayActor pid=|Training Progress:"
)


def counts_training(text: str, behind: int, *, alone: bool = True) -> bool:
    """Whether "step 3/20" counts a training: it stands alone, or with what the step measured. Scripts number their own
    parts in the same way. ``alone``: it may stand alone."""
    rest = text[behind:].strip(" .])|=-#*_~\u2500\u2501\u2550")
    return not OTHER_COUNTS.search(text) and (MEASURED.search(rest) is not None if rest else alone)


def total_in(line: str) -> int | None:
    """The number of all steps, if the line of a trainer tells it. verl's fully asynchronous trainer first tells another
    one: the later line counts."""
    match = VERSIONS.search(line) or TOTAL.search(line)
    return (int(match[1].replace(",", "")) or None) if match is not None else None


def began_in(line: str) -> int | None:
    """The step at which a training begins, 0 from scratch, if the line tells it."""
    match = BEGAN.search(line)
    return None if match is None else int(match[1] or match[2] or 0)


def finishes(line: str) -> bool:
    """Whether a trainer says in this line that it has made all its steps."""
    return FINISHED.search(line) is not None
