"""What a script writes while it is estimated: nothing that was there before is touched."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from estimate_support import Estimate, write

SCRIPT = """
    import os, pathlib, shutil, sqlite3
    import numpy, torch
    weights = {{"w": torch.ones(4, device="cuda")}}
    {body}
"""


def run(folder: Path, estimate: Estimate, body: str, *flags: str) -> dict[str, object]:
    lines = "\n    ".join(body.strip().splitlines())
    write(folder, "writes.py", SCRIPT.format(body=lines))
    done = estimate("writes.py", "--json", "-", *flags)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


# Each replaces, changes or removes what was there, and reads back what it has done.
REPLACING = {
    "open": """
with open("good.txt", "w") as file: file.write("bad")
assert open("good.txt").read() == "bad"
assert pathlib.Path("good.txt").stat().st_size == 3
""",
    "append": """
with open("good.txt", "a") as file: file.write(" and bad")
assert open("good.txt").read() == "good and bad"
""",
    "change in place": """
with open("good.txt", "r+") as file: file.write("bad!")
assert open("good.txt").read() == "bad!"
""",
    "pathlib": """
pathlib.Path("good.txt").write_text("bad")
assert pathlib.Path("good.txt").read_text() == "bad"
""",
    "os.open": """
handle = os.open("good.txt", os.O_WRONLY | os.O_TRUNC)
os.write(handle, b"bad")
os.close(handle)
assert open("good.txt").read() == "bad"
""",
    "os.replace": """
with open("new.txt", "w") as file: file.write("bad")
os.replace("new.txt", "good.txt")
assert open("good.txt").read() == "bad"
assert not os.path.exists("new.txt")
""",
    "os.rename away": """
os.rename("good.txt", "old.txt")
assert open("old.txt").read() == "good"
assert not os.path.exists("good.txt")
with open("old.txt", "a") as file: file.write(" and bad")
assert open("old.txt").read() == "good and bad"
""",
    "remove": """
os.remove("good.txt")
assert not os.path.exists("good.txt") and "good.txt" not in os.listdir()
with open("good.txt", "x") as file: file.write("bad")
assert open("good.txt").read() == "bad"
""",
    "unlink": """
pathlib.Path("good.txt").unlink()
assert not list(pathlib.Path().glob("good.txt"))
""",
    "rmtree": """
shutil.rmtree("old")
assert not os.path.exists("old/kept.txt") and not os.path.exists("old")
os.makedirs("old")
with open("old/kept.txt", "w") as file: file.write("bad")
assert os.listdir("old") == ["kept.txt"]
""",
    "copy": """
with open("new.txt", "w") as file: file.write("bad")
shutil.copy("new.txt", "good.txt")
assert open("good.txt").read() == "bad"
""",
    "move": """
with open("new.txt", "w") as file: file.write("bad")
shutil.move("new.txt", "good.txt")
assert open("good.txt").read() == "bad"
""",
    "truncate": """
os.truncate("good.txt", 0)
assert os.path.getsize("good.txt") == 0
""",
    "link": """
os.remove("good.txt")
os.symlink("old/kept.txt", "good.txt")
assert open("good.txt").read() == "kept"
""",
    "numpy": """
numpy.arange(4).tofile("good.txt")
assert len(numpy.fromfile("good.txt", dtype=numpy.int64)) == 4
""",
    "sqlite": """
base = sqlite3.connect("good.db")
base.execute("create table t (x)")
base.commit()
assert sqlite3.connect("good.db").execute("select count(*) from t").fetchone() == (0,)
""",
    "torch.save": """
torch.save(weights, "model.pt")
assert torch.load("model.pt")["w"].shape == (4,)
assert torch.load("model.pt", mmap=True, map_location="cpu")["w"].shape == (4,)
""",
    "torch.save into a file": """
with open("model.pt", "wb") as file: torch.save(weights, file)
assert torch.load("model.pt")["w"].shape == (4,)
""",
    "torch.jit.save": """
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "model.pt")
torch.jit.load("model.pt")
""",
}


@pytest.mark.parametrize("way", REPLACING)
def test_what_was_there_stays_and_the_script_reads_back_what_it_wrote(
    folder: Path, estimate: Estimate, way: str
) -> None:
    old = folder / "old"
    old.mkdir()
    before = {"good.txt": "good", "good.db": "", "model.pt": "good weights", "old/kept.txt": "kept"}
    for name, text in before.items():
        (folder / name).write_text(text)
    run(folder, estimate, REPLACING[way])
    assert {name: (folder / name).read_text() for name in before} == before


def test_saves_go_to_a_scratch_folder_even_where_nothing_was_and_the_answer_says_which(
    folder: Path, estimate: Estimate
) -> None:
    body = """
os.makedirs("checkpoints/last")
torch.save(weights, "checkpoints/last/new.pt")
numpy.save("values.npy", numpy.zeros(3))
with open("log.txt", "w") as file: file.write("new files of other kinds are allowed")
with open("log.txt", "w") as file: file.write("again")
assert os.listdir("checkpoints/last") == ["new.pt"]
assert [entry.name for entry in os.scandir("checkpoints/last") if entry.is_file()] == ["new.pt"]
"""
    found = run(folder, estimate, body)
    assert not (folder / "checkpoints").exists()
    assert not (folder / "values.npy").exists()
    assert (folder / "log.txt").read_text() == "again"
    assert "checkpoints/last/new.pt" in str(found["warnings"])
    assert "--allow-writes" in str(found["warnings"])
    assert len(found["redirected"]) == 2  # type: ignore[arg-type]


def test_allow_writes_lets_the_script_write(folder: Path, estimate: Estimate) -> None:
    (folder / "good.txt").write_text("good")
    body = 'torch.save(weights, "new.pt")\nopen("good.txt", "w").write("bad")'
    found = run(folder, estimate, body, "--allow-writes")
    assert (folder / "new.pt").exists()
    assert (folder / "good.txt").read_text() == "bad"
    assert found["redirected"] == []


def test_a_checkpoint_that_is_written_aside_and_renamed_replaces_nothing(
    folder: Path, estimate: Estimate
) -> None:
    (folder / "last.ckpt").write_text("good")
    body = """
torch.save(weights, "last.ckpt.part")
os.replace("last.ckpt.part", "last.ckpt")
assert torch.load("last.ckpt")["w"].shape == (4,)
"""
    run(folder, estimate, body)
    assert (folder / "last.ckpt").read_text() == "good"


def test_temporary_folders_of_the_scripts_own_work_as_ever(
    folder: Path, estimate: Estimate
) -> None:
    body = """
import tempfile
with tempfile.TemporaryDirectory() as scratch:
    torch.save(weights, scratch + "/a.pt")
    open(scratch + "/b.txt", "w").write("b")
    os.rename(scratch + "/b.txt", scratch + "/c.txt")
    assert sorted(os.listdir(scratch)) == ["a.pt", "c.txt"]
assert not os.path.exists(scratch)
"""
    run(folder, estimate, body)


def test_another_process_finds_a_temporary_file_whatever_its_name(
    folder: Path, estimate: Estimate
) -> None:
    found = run(
        folder,
        estimate,
        """
import subprocess, sys, tempfile
with tempfile.NamedTemporaryFile(suffix=".pkl") as file:
    file.write(b"data")
    file.flush()
    look = f"assert open({file.name!r}, 'rb').read() == b'data'"
    subprocess.run([sys.executable, "-c", look], check=True)
handle, name = tempfile.mkstemp(suffix=".pt")
torch.save(weights, name)
look = f"assert len(open({name!r}, 'rb').read()) > 100"
subprocess.run([sys.executable, "-c", look], check=True)
os.close(handle)
os.unlink(name)
assert not os.path.exists(name)
""",
    )
    assert not found["redirected"]


def test_a_script_may_ask_for_the_folder_of_temporary_files_in_a_second_pass() -> None:
    """Which Python finds by writing to it, with a lock held; a process that hangs is ended."""
    source = """
import tempfile
from peakline._estimate.writes import kept_apart

tempfile.tempdir = None
with kept_apart(everything=True):
    print(tempfile.gettempdir())
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == tempfile.gettempdir()


def test_a_temporary_file_does_not_hide_the_folder_that_it_is_in(
    folder: Path, estimate: Estimate
) -> None:
    (folder / "cache").mkdir()
    (folder / "cache" / "kept.txt").write_text("kept")
    body = """
import tempfile
for where in ("cache", None):
    file = tempfile.NamedTemporaryFile("w", dir=where, delete=False)
    file.write("new")
    file.close()
    os.makedirs(os.path.dirname(file.name), exist_ok=True)
    os.replace(file.name, file.name + ".txt")
    assert open(file.name + ".txt").read() == "new"
    os.remove(file.name + ".txt")
assert os.listdir("cache") == ["kept.txt"]
"""
    run(folder, estimate, body)
    assert [path.name for path in (folder / "cache").iterdir()] == ["kept.txt"]


def test_checkpoints_are_linked_and_copied_with_all_that_files_have(
    folder: Path, estimate: Estimate
) -> None:
    (folder / "good.txt").write_text("good")
    body = """
os.makedirs("out")
for step in range(2):
    torch.save(weights, "out/tmp.pth.tar")
    os.replace("out/tmp.pth.tar", "out/last.pth.tar")
    os.link("out/last.pth.tar", f"out/{step}.pth.tar")
    shutil.copy2("out/last.pth.tar", f"out/best-{step}.pth.tar")
assert len(os.listdir("out")) == 5
assert torch.load("out/0.pth.tar")["w"].shape == (4,)
os.link("good.txt", "second.txt")
with open("second.txt", "w") as file: file.write("bad")
assert open("good.txt").read() == "good"
"""
    run(folder, estimate, body)
    assert (folder / "good.txt").read_text() == "good"
    assert not (folder / "out").exists()


def test_a_folder_that_the_script_makes_and_renames_leaves_nothing_behind(
    folder: Path, estimate: Estimate
) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "old.txt").write_text("old")
    body = """
os.makedirs("data.incomplete")
with open("data.incomplete/new.txt", "w") as file: file.write("new")
shutil.rmtree("data")
shutil.move("data.incomplete", "data")
os.makedirs("data", exist_ok=True)
assert os.listdir("data") == ["new.txt"]
"""
    run(folder, estimate, body)
    assert [path.name for path in (folder / "data").iterdir()] == ["old.txt"]
    assert not (folder / "data.incomplete").exists()


def test_everything_is_as_before_after_the_estimate(folder: Path, estimate: Estimate) -> None:
    import builtins
    import os
    import sys

    before = builtins.open, os.replace, os.stat, list(sys.meta_path), dict(os.environ)
    run(folder, estimate, 'torch.save(weights, "new.pt")')
    assert before == (builtins.open, os.replace, os.stat, list(sys.meta_path), dict(os.environ))


def test_safetensors_are_saved_and_read_through_the_scratch_folder(
    folder: Path, estimate: Estimate
) -> None:
    pytest.importorskip("safetensors")
    (folder / "model.safetensors").write_text("good")
    body = """
from safetensors import safe_open
from safetensors.torch import load_file, save_file
save_file({"w": torch.zeros(4)}, "model.safetensors")
assert load_file("model.safetensors")["w"].shape == (4,)
"""
    run(folder, estimate, body)
    assert (folder / "model.safetensors").read_text() == "good"


def not_imported(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Until the test ends, whatever was imported before; and what it imports is forgotten."""
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)
    for name in packages:
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]


def test_loggers_and_uploads_stay_at_home(
    folder: Path, estimate: Estimate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand-ins for the libraries, which need not be installed: it counts what they are told."""
    monkeypatch.syspath_prepend(str(folder))
    not_imported(monkeypatch, "wandb", "mlflow", "huggingface_hub")
    write(folder, "wandb.py", "def init(**options): return options\n")
    source = """
        import os
        def set_tracking_uri(uri):  # it refuses folders unless it is told otherwise
            assert os.environ["MLFLOW_ALLOW_FILE_STORE"] == "true" and "peakline-writes" in uri
    """
    write(folder, "mlflow.py", source)
    (folder / "huggingface_hub").mkdir()
    write(folder, "huggingface_hub/__init__.py", "")
    source = """
        class HfApi:
            def upload_file(self, **options):
                raise AssertionError("sent")
        upload_file = HfApi().upload_file
    """
    write(folder, "huggingface_hub/hf_api.py", source)
    body = """
import mlflow, wandb
mlflow.set_tracking_uri("http://tracking.example")
from huggingface_hub.hf_api import HfApi, upload_file
run = wandb.init(project="p", mode="online")
assert run["mode"] == "offline" and "peakline-writes" in run["dir"], run
assert "me/model" in HfApi().upload_file(repo_id="me/model")
upload_file(repo_id="me/model")
"""
    found = run(folder, estimate, body)
    assert "MLflow" in str(found["warnings"])
    assert "Weights & Biases" in str(found["warnings"])
    assert "me/model" in str(found["warnings"])


THROUGH_LINKS = {
    "a link": """
os.symlink("good.txt", "link")
with open("link", "w") as file: file.write("bad")
assert open("link").read() == open("good.txt").read() == "bad"
""",
    "a link to a link": """
os.symlink("good.txt", "first")
os.symlink("first", "second")
with open("second", "a") as file: file.write(" and bad")
assert open("first").read() == "good and bad"
""",
    "a link to a folder": """
os.symlink("kept", "link")
with open("link/good.txt", "w") as file: file.write("bad")
assert open("kept/good.txt").read() == "bad"
""",
    "a link in a folder of its own": """
os.mkdir("own")
os.system("ln -s ../good.txt own/link")
with open("own/link", "w") as file: file.write("bad")
assert open("own/link").read() == "bad"
""",
    "a link that was there": """
with open("old_link", "w") as file: file.write("bad")
assert open("old_link").read() == "bad"
""",
    "a second name": """
os.link("good.txt", "twin")
with open("twin", "w") as file: file.write("bad")
assert open("twin").read() == "bad"
""",
    "a second name, from an open folder": """
here = os.open(".", os.O_RDONLY)
os.link("good.txt", "twin", src_dir_fd=here, dst_dir_fd=here)
with open("twin", "w") as file: file.write("bad")
""",
    "a second name in a folder of its own, by another program": """
os.mkdir("own")
os.system("ln good.txt own/twin")
with open("own/twin", "w") as file: file.write("bad")
assert open("own/twin").read() == "bad"
""",
    "the mode": "os.chmod('good.txt', 0o600)",
    "the time": "os.utime('good.txt', (1, 1))",
    "the time, through a link": "os.symlink('good.txt', 'link'); os.utime('link', (1, 1))",
}


@pytest.mark.parametrize("body", THROUGH_LINKS.values(), ids=THROUGH_LINKS.keys())
def test_nothing_is_written_through_another_name_of_what_was_there(
    folder: Path, estimate: Estimate, body: str
) -> None:
    (folder / "kept").mkdir()
    (folder / "good.txt").write_text("good")
    (folder / "kept" / "good.txt").write_text("good")
    (folder / "old_link").symlink_to("good.txt")
    before = (folder / "good.txt").stat()
    run(folder, estimate, body)
    assert (folder / "good.txt").read_text() == "good"
    assert (folder / "kept" / "good.txt").read_text() == "good"
    after = (folder / "good.txt").stat()
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)


def test_two_names_of_a_file_of_the_scripts_own_stay_one_file(
    folder: Path, estimate: Estimate
) -> None:
    body = """
with open("own.txt", "w") as file: file.write("one")
os.link("own.txt", "twin.txt")
with open("twin.txt", "w") as file: file.write("two")
assert open("own.txt").read() == "two"
"""
    run(folder, estimate, body)
    assert (folder / "own.txt").read_text() == "two"


def test_every_function_of_the_hub_that_changes_something_stays_at_home(
    folder: Path, estimate: Estimate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real library, whose every request would have to fail: there is no such host."""
    not_imported(monkeypatch, "huggingface_hub")
    if importlib.util.find_spec("huggingface_hub") is None:
        pytest.skip("huggingface_hub is not installed")
    body = """
os.environ["HF_ENDPOINT"] = "http://nowhere.invalid"
from huggingface_hub import CommitOperationAdd, HfApi, create_repo, upload_file
api = HfApi(token="none")
assert create_repo("me/model", exist_ok=True).repo_id == "me/model"
add = CommitOperationAdd(path_in_repo="w", path_or_fileobj=b"1")
api.preupload_lfs_files("me/model", additions=[add])
api.create_commit("me/model", operations=[add], commit_message="m")
later = api.upload_folder(repo_id="me/model", folder_path=".", run_as_future=True)
assert "me/model" in later.result()
upload_file(path_or_fileobj=b"1", path_in_repo="w", repo_id="me/other")
api.delete_repo("me/model")
"""
    told = str(run(folder, estimate, body)["warnings"])
    assert "me/model" in told
    assert "me/other" in told
