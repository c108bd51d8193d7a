"""Removing what Ray leaves."""

from __future__ import annotations

from pathlib import Path

from liverl.verl.ray_dir import remove_ray_directory


def test_a_directory_goes_and_a_link_or_file_stays(tmp_path: Path) -> None:
    made = tmp_path / "lv-1"
    (made / "session_latest" / "logs").mkdir(parents=True)
    (made / "session_latest" / "logs" / "raylet.out").write_text("x")
    assert remove_ray_directory(made) is None and not made.exists()
    assert remove_ray_directory(made) is None, "there is nothing to do twice"
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        assert remove_ray_directory(tmp_path / name) == f"{tmp_path / name} is not a directory of this user"
    assert kept.exists() and (tmp_path / "file").exists()
