"""Errors of the operating system arrive as the storage error for the possible reaction."""

from __future__ import annotations

import errno
import os

import pytest

from kraftlab.quorum.storage import DiskFailed, FsyncFailed, RealFileSystem, StorageFull


def failing(code):
    def fail(*_arguments):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_no_space_may_pass(tmp_path, monkeypatch, code):
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "pwrite", failing(code))
    with pytest.raises(StorageFull, match=os.strerror(code)):
        file.pwrite(b"x", 0)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_moment_without_free_descriptors_passes(tmp_path, monkeypatch, code):
    monkeypatch.setattr(os, "open", failing(code))
    with pytest.raises(StorageFull, match=r"ulimit -n"):
        RealFileSystem().open(str(tmp_path / "f"), create=True)


def test_other_write_errors_are_final(tmp_path, monkeypatch):
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "pwrite", failing(errno.EIO))
    with pytest.raises(DiskFailed, match="cannot write"):
        file.pwrite(b"x", 0)


def test_failed_fsync_says_that_the_process_ends(tmp_path, monkeypatch):
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "fdatasync", failing(errno.ENOSPC))
    with pytest.raises(FsyncFailed, match="this process ends"):
        file.fdatasync()


def test_short_writes_are_finished(tmp_path, monkeypatch):
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: whole(descriptor, data[:3], position))
    file.pwrite(b"0123456789", 2)
    assert file.pread(100, 0) == b"\0\x000123456789"


def test_a_file_is_closed_once_however_often_that_is_asked(tmp_path):
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    file.close()
    other = RealFileSystem().open(str(tmp_path / "g"), create=True)
    file.close()
    other.pwrite(b"x", 0)
    other.close()


def test_directories_are_made_with_their_parents(tmp_path):
    file_system = RealFileSystem()
    file_system.make_directory(str(tmp_path / "a" / "b"))
    file_system.make_directory(str(tmp_path / "a" / "b"))
    assert file_system.names(str(tmp_path / "a")) == ["b"]
    assert file_system.names(str(tmp_path / "missing")) == []
