"""Each home-made check is seen to fail on a bad sample, and to pass on a good one."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).parent


def run(check: str, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run(
            [sys.executable, str(TOOLS / check), folder],
            capture_output=True,
            text=True,
            check=False,
        )


class CheckLayers(unittest.TestCase):
    def test_core_that_includes_torch_is_refused_by_file_and_line(self) -> None:
        result = run("check_layers.py", {"core/src/a.cc": "\n#include <ATen/ATen.h>\n"})
        assert result.returncode == 1
        assert "core/src/a.cc:2" in result.stderr

    def test_core_that_includes_python_is_refused(self) -> None:
        assert run("check_layers.py", {"core/src/a.cc": "#include <Python.h>"}).returncode == 1

    def test_public_header_that_reaches_into_src_is_refused(self) -> None:
        files = {"core/include/peakline/a.h": '#include "ledger/peak.h"'}
        assert run("check_layers.py", files).returncode == 1

    def test_pythons_part_of_capture_is_a_folder_of_its_own(self) -> None:
        for header in ("Python.h", "torch/csrc/autograd/python_variable.h"):
            lines = f"#include <{header}>\n"
            for folder in ("capture", "vgpu", "libtorch"):
                assert run("check_layers.py", {f"{folder}/a.cc": lines}).returncode == 1, folder
            assert run("check_layers.py", {"capture/python/a.cc": lines}).returncode == 0

    def test_capture_may_include_torch_and_core(self) -> None:
        files = {"capture/a.cc": "#include <ATen/ATen.h>\n#include <peakline/event.h>\n"}
        assert run("check_layers.py", files).returncode == 0

    def test_planner_that_includes_core_torch_or_cudnn_is_refused(self) -> None:
        for header in ("peakline/conv_planner.h", "kernels/rules.h", "ATen/ATen.h", "cudnn.h"):
            files = {"planner/a.cc": f"#include <{header}>\n"}
            assert run("check_layers.py", files).returncode == 1, header

    def test_planner_may_include_its_own_headers_and_json(self) -> None:
        files = {"planner/a.cc": '#include "planner/request.h"\n#include <nlohmann/json.hpp>\n'}
        assert run("check_layers.py", files).returncode == 0

    def test_core_and_vgpu_that_include_the_planner_are_refused(self) -> None:
        for folder in ("core/src", "vgpu", "cli", "capture"):
            files = {f"{folder}/a.cc": '#include "planner/request.h"'}
            assert run("check_layers.py", files).returncode == 1, folder


class CheckTestsListed(unittest.TestCase):
    def test_test_file_that_no_target_builds_is_named(self) -> None:
        files = {
            "tests/CMakeLists.txt": "a_test.cc",
            "tests/unit/a_test.cc": "",
            "tests/b_test.cc": "",
        }
        result = run("check_tests_listed.py", files)
        assert result.returncode == 1
        assert "tests/b_test.cc" in result.stderr
        assert "a_test.cc:" not in result.stderr

    def test_all_listed_passes(self) -> None:
        files = {"tests/CMakeLists.txt": "unit/a_test.cc", "tests/unit/a_test.cc": ""}
        assert run("check_tests_listed.py", files).returncode == 0


class CheckEventKinds(unittest.TestCase):
    def test_a_kind_that_is_only_passed_on_is_named(self) -> None:
        files = {
            "capture/raw_event.h": "enum class RawKind {\n  kAlloc,  // a\n  kFree,\n};",
            "capture/observer.cc": "push({.kind = RawKind::kAlloc});",
            "capture/assembler.cc": "case RawKind::kFree:",
        }
        result = run("check_event_kinds.py", files)
        assert result.returncode == 1
        assert "kFree" in result.stderr
        assert "kAlloc" not in result.stderr
        files["vgpu/memory.cc"] = "push({.kind = RawKind::kFree});"
        assert run("check_event_kinds.py", files).returncode == 0


class CheckDocs(unittest.TestCase):
    def test_a_file_that_is_not_in_the_tree_is_named_with_its_line(self) -> None:
        files = {"docs/a.md": "See\n`cli/gone.cc`, `cli/here.cc`.\n", "cli/here.cc": ""}
        result = run("check_docs.py", files)
        assert result.returncode == 1
        assert result.stderr == "docs/a.md:2: there is no 'cli/gone.cc'\n"

    def test_a_folder_and_the_end_of_a_path_must_exist_too(self) -> None:
        there = {"core/src/base/units.cc": ""}
        for name in ("core/src/text", "base/unit.cc", "units.h"):
            assert run("check_docs.py", {"docs/a.md": f"`{name}`", **there}).returncode == 1, name
        for name in ("core/src/base", "base/units.cc", "units.cc", "core/"):
            assert run("check_docs.py", {"docs/a.md": f"`{name}`", **there}).returncode == 0, name

    def test_links_to_missing_files_and_headings_are_refused(self) -> None:
        there = {"docs/b.md": "# One thing, said\n"}
        for link in ("c.md", "b.md#another-thing", "#here"):
            assert run("check_docs.py", {"docs/a.md": f"[x]({link})", **there}).returncode == 1, (
                link
            )
        for link in ("b.md", "b.md#one-thing-said", "https://example.org/c.md"):
            assert run("check_docs.py", {"docs/a.md": f"[x]({link})", **there}).returncode == 0, (
                link
            )

    def test_placeholders_and_files_of_users_are_no_names(self) -> None:
        text = "`--gpu FILE.toml`, `train.py`, `.toml`, `build/demo.html`, `show --json`"
        assert run("check_docs.py", {"docs/a.md": text}).returncode == 0


class TidyFiles(unittest.TestCase):
    """In a repository of three files, of which two include torch."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.git("init", "-q")
        files = {
            "core/a.cc": "",
            "vgpu/b.cc": "-I x/torch/include",
            "vgpu/c.cc": "-I torch/include",
        }
        commands = [
            {"file": f"{self.folder}/{name}", "command": f"c++ {flags}"}
            for name, flags in files.items()
        ]
        self.write(".gitignore", "commands.json")
        self.write("commands.json", json.dumps(commands))
        for day, name in enumerate(["vgpu/c.cc", "core/a.cc", "vgpu/b.cc"]):
            self.write(name, "one")
            self.commit(day * 48)

    def git(self, *arguments: str, **environment: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        command = ["git", *identity, *arguments]
        subprocess.run(command, cwd=self.folder, check=True, env={**os.environ, **environment})

    def commit(self, hour: int) -> None:
        self.git("add", "-A")
        date = f"@{1_700_000_000 + hour * 3600} +0000"
        self.git("commit", "-qm", "m", GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def read(self, folder: Path | None = None, **environment: str) -> tuple[list[str], str, int]:
        done = subprocess.run(
            [sys.executable, str(TOOLS / "tidy_files.py"), "commands.json", "--changed"],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder or self.folder,
            env={**os.environ, **environment},
        )
        return done.stdout.split(), done.stderr, done.returncode

    def test_what_changed_in_the_last_day_is_read(self) -> None:
        assert self.read()[0] == ["vgpu/b.cc"]

    def test_a_commit_to_compare_with_may_be_named(self) -> None:
        assert self.read(LINT_BASE="HEAD~2")[0] == ["vgpu/b.cc", "core/a.cc"]

    def test_a_base_that_is_no_commit_is_refused_with_a_sentence(self) -> None:
        _, told, status = self.read(LINT_BASE="nowhere")
        assert status == 2
        assert told == "clang-tidy: LINT_BASE=nowhere is no commit of this repository\n"

    def test_an_option_that_does_not_exist_is_refused_before_anything_is_read(self) -> None:
        command = [sys.executable, str(TOOLS / "tidy_files.py"), "commands.json", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage" in done.stderr

    def test_a_changed_header_brings_its_source_file(self) -> None:
        self.write("core/a.h", "")
        assert self.read()[0] == ["vgpu/b.cc", "core/a.cc"]

    def test_torch_files_beyond_the_bound_are_named_and_the_newest_read(self) -> None:
        self.write("vgpu/c.cc", "two")
        files, told, _ = self.read(LINT_TORCH_FILES="1")
        assert files == ["vgpu/c.cc"]
        assert "vgpu/b.cc changed too" in told

    def test_other_files_have_a_bound_of_their_own(self) -> None:
        self.write("core/a.cc", "two")
        files, told, _ = self.read(LINT_FILES="0")
        assert files == ["vgpu/b.cc"]
        assert "core/a.cc changed too" in told

    def test_without_history_every_file_counts_as_changed(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            shallow = Path(empty).resolve() / "shallow"
            self.git("clone", "-q", "--depth", "1", f"file://{self.folder}", str(shallow))
            commands = (self.folder / "commands.json").read_text()
            (shallow / "commands.json").write_text(commands.replace(str(self.folder), str(shallow)))
            files, told, _ = self.read(shallow)
        assert files == ["vgpu/b.cc", "vgpu/c.cc", "core/a.cc"]
        assert "no earlier commit" in told


class CheckOffline(unittest.TestCase):
    INDEX = {"searchindex.js": ""}

    def test_a_page_that_loads_from_another_machine_is_named(self) -> None:
        for page in (
            '<script async src="https://example.org/a.js"></script>',
            '<link rel="stylesheet" href="https://example.org/a.css">',
            "<style>@font-face{src:url(https://example.org/a.woff)}</style>",
            '<img src="//example.org/a.png">',
        ):
            result = run("docs/check_offline.py", {"a.html": page, **self.INDEX})
            assert result.returncode == 1, page
            assert "a.html: loads" in result.stderr

    def test_links_for_readers_and_own_files_pass(self) -> None:
        page = '<a href="https://example.org">x</a><script src="_static/a.js"></script>'
        assert run("docs/check_offline.py", {"a.html": page, **self.INDEX}).returncode == 0

    def test_a_site_without_search_is_refused(self) -> None:
        assert run("docs/check_offline.py", {"a.html": ""}).returncode == 1


if __name__ == "__main__":
    unittest.main()
