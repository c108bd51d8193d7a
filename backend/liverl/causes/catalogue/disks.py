"""Signatures of disks and files: full, lost, read-only, forbidden."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="disk-full-path",
        component="host",
        role="cause",
        pattern=r"\[Errno 28\] No space left on device: '(?P<path>[^'\n]{1,300})'",
        needle="[Errno 28] No space left on device",
        title="Disk full: no space left for {path}",
        cause="The file system that holds {path} is full.",
        fix=(
            "Free space there, see with df -h which file system it is and how much is free, and save "
            "fewer checkpoints (training.save_freq), then restart."
        ),
        command="df -h '{path}'",
        source="errno 28 ENOSPC, as Python prints it with a file name",
        fires="OSError: [Errno 28] No space left on device: '/tmp/full/a'",
        spares="OSError: [Errno 28] No space left on device",
    ),
    Signature(
        id="disk-full",
        component="host",
        role="cause",
        pattern=r"\[Errno 28\] No space left on device(?!: ')",
        needle="[Errno 28] No space left on device",
        title="Disk full: no space left on device",
        cause="A write failed because a file system is full; the error does not say which path it was.",
        fix=(
            "Look which file system is full and how much is free (df -h), free space, save fewer "
            "checkpoints (training.save_freq) or move run.run_root and ray.temp_dir, then restart."
        ),
        command="df -h",
        source="recordings/cases/45-made-disk-full-json.log",
        fires="OSError: [Errno 28] No space left on device",
        spares="OSError: [Errno 122] Disk quota exceeded",
        recorded=True,
    ),
    Signature(
        id="torch-save-failed",
        component="torch",
        role="cause",
        pattern=r"PytorchStreamWriter failed writing file (?P<file>[^\s:]{1,200})",
        needle="PytorchStreamWriter failed writing file",
        title="A checkpoint could not be written: the disk is probably full",
        cause=(
            "torch.save could not write {file}: the disk of the checkpoint directory is full or its "
            "quota is used up."
        ),
        fix=(
            "See how much is free there (df -h, quota -s), delete old checkpoints, keep fewer "
            "(training.save_freq), then restart."
        ),
        command="df -h",
        source="recordings/cases/31-torch-save-disk-full.log",
        fires=(
            "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed "
            "writing file data/228: file write failed"
        ),
        spares="RuntimeError: PytorchStreamReader failed reading file data/228: file read failed",
    ),
    Signature(
        id="torch-save-cut",
        component="torch",
        role="cause",
        # ENOSPC itself is in no log: torch's writer only finds that the file is shorter than what it wrote.
        pattern=r"\[enforce fail at inline_container\.cc:\d{1,6}\] \. unexpected pos \d{1,20} vs \d{1,20}",
        needle="unexpected pos ",
        title="A checkpoint could not be written: the disk is probably full",
        cause=(
            "The file is shorter than what torch.save had written to it: the disk of the checkpoint directory is full, "
            "its quota is used up, or its file system failed."
        ),
        fix=(
            "See how much is free there (df -h, quota -s), delete old checkpoints, keep fewer "
            "(training.save_freq), then restart."
        ),
        command="df -h",
        source="tests/stack/test_verl_faults.py",
        fires="RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 9600 vs 9494",
        spares="RuntimeError: [enforce fail at inline_container.cc:320] . file not found: model/data.pkl",
        recorded=True,
    ),
    Signature(
        id="torch-load-damaged",
        component="torch",
        role="cause",
        pattern="PytorchStreamReader failed (?:reading zip archive|reading file|locating file)",
        needle="PytorchStreamReader failed",
        title="A checkpoint file is damaged or incomplete",
        cause=(
            "torch.load could not read the file as an archive: it was cut off while it was written or copied."
        ),
        fix="Delete that checkpoint and resume from the one before it, or copy the file again.",
        source="torch caffe2/serialize/inline_container.cc",
        fires=(
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
        ),
        spares="RuntimeError: PytorchStreamWriter failed writing file data/228: file write failed",
    ),
    Signature(
        id="quota-path",
        component="host",
        role="cause",
        pattern=r"\[Errno 122\] Disk quota exceeded: '(?P<path>[^'\n]{1,300})'",
        needle="[Errno 122] Disk quota exceeded: '",
        title="Disk quota used up: {path}",
        cause="The file system of {path} has room, but your quota on it is used up.",
        fix=(
            "Delete files of yours there (du -sh ~/.cache/* ~/.triton), or move what fills it to another file system: "
            "run.run_root, and the caches by HF_HOME, TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, VLLM_CACHE_ROOT and "
            "LIVERL_CACHE_DIR."
        ),
        command="quota -s",
        source="NOAA-EPIC/EAGLE issue 121",
        fires="OSError: [Errno 122] Disk quota exceeded: '/home/ana/.triton/cache/7KX2/tmp.pid_602_11'",
        spares="OSError: [Errno 122] Disk quota exceeded",
    ),
    Signature(
        id="quota",
        component="host",
        role="cause",
        pattern=r"\[Errno 122\] Disk quota exceeded(?!: ')",
        needle="[Errno 122] Disk quota exceeded",
        title="Disk quota exceeded",
        cause="The file system has room, but your quota on it is used up.",
        fix=(
            "Delete files of yours there, or move run.run_root and the caches (HF_HOME, TRITON_CACHE_DIR, "
            "VLLM_CACHE_ROOT, LIVERL_CACHE_DIR) to another file system."
        ),
        command="quota -s",
        source="errno 122 EDQUOT, as Python prints it",
        fires="OSError: [Errno 122] Disk quota exceeded",
        spares="OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache/huggingface/hub'",
    ),
    Signature(
        id="stale-file-handle",
        component="host",
        role="cause",
        pattern=r"\[Errno 116\] Stale file handle",
        needle="[Errno 116] Stale file handle",
        title="A file of a network file system was lost (stale file handle)",
        cause=(
            "The file or its directory was deleted or moved on the server, or the export was restarted, "
            "while this process had it open."
        ),
        fix=(
            "Check that the mount answers (ls in its directory), remount it if not, and restart; do not "
            "delete shared caches while runs use them."
        ),
        source="errno 116 ESTALE, as Python prints it",
        fires="OSError: [Errno 116] Stale file handle",
        spares="OSError: [Errno 2] No such file or directory: '/data/handle'",
    ),
    Signature(
        id="io-error",
        component="host",
        role="cause",
        pattern=r"\[Errno 5\] Input/output error",
        needle="[Errno 5] Input/output error",
        title="A disk or mount failed (input/output error)",
        cause="The kernel could not read or write the device or the network mount.",
        fix="Look at dmesg for the device, check the mount, and restart on another file system or host.",
        command="dmesg -T | tail -50",
        source="errno 5 EIO, as Python prints it",
        fires="OSError: [Errno 5] Input/output error: '/mnt/ckpt/global_step_40'",
        spares="OSError: [Errno 15] Block device required",
    ),
    Signature(
        id="read-only-disk",
        component="host",
        role="cause",
        pattern=r"\[Errno 30\] Read-only file system(?:: '(?P<path>[^'\n]{1,300})')",
        needle="[Errno 30] Read-only file system",
        title="{path} is on a read-only file system",
        cause="The file system is mounted read-only, or the kernel made it so after an error of the disk.",
        fix=(
            "Write somewhere else (run.run_root, training data under data.data_dir) or have it mounted "
            "writable."
        ),
        source="errno 30 EROFS, as Python prints it",
        fires="OSError: [Errno 30] Read-only file system: '/models/cache'",
        spares="OSError: [Errno 28] No space left on device: '/models/cache'",
    ),
    Signature(
        id="no-permission",
        component="host",
        role="cause",
        pattern=r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^'\n]{1,300})'",
        needle="PermissionError: [Errno 13] Permission denied: '",
        title="Permission denied: {path}",
        cause="This user may not read or write {path}.",
        fix=(
            "Give this user access (ls -ld shows who has it), or use another path (run.run_root, "
            "data.data_dir, HF_HOME)."
        ),
        command="ls -ld '{path}'",
        source="errno 13 EACCES, as Python prints it",
        fires="PermissionError: [Errno 13] Permission denied: '/data/ckpt/global_step_40'",
        spares="PermissionError: [Errno 1] Operation not permitted",
    ),
)
