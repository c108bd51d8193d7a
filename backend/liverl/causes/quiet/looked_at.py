"""Which lines of a log are looked at for what they tell of a training: those with one of these texts. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from liverl.causes.read.loose import Words
from liverl.util.late_pattern import late_pattern

# A line that is looked at contains one of these, and matches ``LOOKED_AT``: to search for texts is quicker.
NEEDLES = tuple(
    (
        b"tep;STEP;teration;iter;%|;total_;val_only;dataloader;rom scratch;esuming;heckpoint;Job ;Submitted; created;"
        b" deleted;nohup;+ ;xhausted;used up;*** [;'epoch';XIT;o more ;out of ;wandb: ;etrics;raining;real;xit;"
        b"inished;code;status;actor_rollout;main_;verl.trainer;TrainRayActor"
    ).split(b";")
)
LOOKED_AT = late_pattern(
    rb"tep[:=#\[ ]|train_steps |teps(?::| =| +[:=])|STEP|teration|iter[ :=]|%\||total_(?:training_steps|epochs)|"
    rb"val_only|"
    rb"(?:train|validate) dataloader|rom scratch|global step to|esuming from|checkpoint folder:|Found checkpoint:|"
    rb"Job '|Job submission|Submitted batch| (?:created|deleted)|"
    rb"nohup|\+ (?:setsid|disown|tmux|screen)|xhausted|used up|o more |"
    rb"out of (?:data|samples|prompts)|wandb: |alidation metrics|raining (?:finished|has|is|been|complete|done)|"
    rb"real[\t ]|'epoch': |"
    rb"exit|Exit|EXIT|finished|\*\*\* \[|with (?:code|status)|'actor_rollout_ref'|main_(?:ppo|dapo)|verl\.trainer|"
    rb"TrainRayActor",
)
# What one of ``LOOKED_AT`` contains
CORES = (
    *("tep:", "tep=", "tep#", "tep[", "tep ", "train_steps ", "teps:", "teps ", "teps=", "STEP", "teration"),
    *(
        "iter ",
        "iter:",
        "iter=",
        "%|",
        "total_training_steps",
        "total_epochs",
        "val_only",
        "train dataloader",
    ),
    *("validate dataloader", "rom scratch", "global step to", "esuming from", "checkpoint folder:"),
    *(
        "Found checkpoint:",
        "Job '",
        "Job submission",
        "Submitted batch",
        " created",
        " deleted",
        "nohup",
        "+ setsid",
    ),
    *("+ disown", "+ tmux", "+ screen", "xhausted", "used up", "o more ", "out of data", "out of samples"),
    *("out of prompts", "wandb: ", "alidation metrics", "raining finished", "raining has", "raining is"),
    *(
        "raining been",
        "raining complete",
        "raining done",
        "real\t",
        "real ",
        "'epoch': ",
        "exit",
        "Exit",
        "EXIT",
    ),
    *("finished", "*** [", "with code", "with status", "'actor_rollout_ref'", "main_ppo", "main_dapo"),
    *("verl.trainer", "TrainRayActor"),
)


@cache
def words() -> Words:
    """The words that a line must have to be looked at, indexed once."""
    return Words(CORES)


def with_needle(lines: Sequence[bytes]) -> set[int]:
    """The numbers of the lines in which a needle stands."""
    begins = list(accumulate((len(line) + 1 for line in lines), initial=0))
    text = b"\n".join(lines)
    found = set()
    for needle in NEEDLES:
        place = text.find(needle)
        while place >= 0:
            number = bisect_right(begins, place) - 1
            found.add(number)
            place = text.find(needle, begins[number + 1])
    return found
