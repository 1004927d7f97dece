"""What a registry, a citation manager and a public repository are shown agrees with the package."""

import re
import subprocess
import tomllib
from pathlib import Path

import diptych

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
URL = PROJECT["project"]["urls"]["Repository"]


def test_all_files_name_one_repository() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "CITATION.cff" in tracked
    for name in tracked:
        if (ROOT / name).suffix in {".md", ".toml", ".yml", ".cff", ".py"} and (ROOT / name).is_file():
            found = re.findall(r"https://github\.com/[\w.-]+/diptych", (ROOT / name).read_text("utf-8"))
            assert set(found) <= {URL}, name
    assert f"git clone {URL} && cd diptych\n" in (ROOT / "README.md").read_text()


def test_links_of_the_readme_lead_somewhere_from_a_registry() -> None:
    text = (ROOT / "README.md").read_text()
    for rule in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith("https://")] == []
    assert all("/raw/main/" in target for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text))


def test_one_version() -> None:
    assert PROJECT["project"]["version"] == diptych.__version__
    assert f"version: {diptych.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_workflows_run_each_part_of_the_ci() -> None:
    parts = set(
        re.findall(r"^        (\w[\w |]*)\) \"\$part\"", (ROOT / ".ci/run").read_text(), re.MULTILINE)[0].split(" | ")
    )
    often = re.search(r"part: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    nightly = re.search(r"command: \[(.*)\]", (ROOT / ".github/workflows/nightly.yml").read_text())
    assert often is not None
    assert nightly is not None
    assert nightly[1].split(", ") == ["make thorough", ".ci/run oldest", "make audit"]
    assert {*often[1].split(", "), "thorough", "oldest"} == parts == {"tests", "checks", "other", "thorough", "oldest"}


def test_what_users_install_holds_no_tools_of_developers() -> None:
    assert PROJECT["tool"]["uv"]["default-groups"] == []
    export = ["uv", "export", "--frozen", "--no-emit-project", "--no-hashes", "--no-annotate", "--no-header", "-q"]
    lines = subprocess.run(export, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    names = {re.split(r"[=<> ;]", line)[0] for line in lines if "sys_platform == 'win32'" not in line}
    ours = {name for name in names if not name.startswith(("nvidia-", "cuda-")) and name != "triton"}
    assert "torch" in ours
    assert "pytest" not in ours
    assert len(ours) <= 60, sorted(ours)
