"""Modules that parse foreign bytes with a library are few, and SECURITY.md lists them for an audit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SRC = ROOT / "src"
LIBRARIES = {
    "bz2", "ctypes", "dill", "gzip", "h5py", "html.parser", "lmdb", "lxml", "lzma", "marshal", "onnxruntime", "pickle",
    "pyarrow", "selectolax", "shelve", "subprocess", "tarfile", "xml", "yaml", "zipfile", "zlib",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "np.load", "numpy.load", "torch.load", "os.system"}
# Files that use these on bytes of others, or that start programs. A new one belongs here and into SECURITY.md.
PARSERS = {
    "data/formats/flickr30k.py": {"xml"},
    "metrics/java.py": {"subprocess"},
    "diptych_mine/checking.py": {"pyarrow"},
    "diptych_mine/judge/onnx_judge.py": {"zipfile"},
    "diptych_mine/pages/bodies.py": {"pyarrow", "zlib"},
    "diptych_mine/pages/inputs.py": {"pyarrow", "zlib"},
    "diptych_mine/pages/pages.py": {"selectolax"},
    "diptych_mine/pages/tars.py": {"tarfile", "zlib"},
    "diptych_mine/pages/warc.py": {"zlib"},
    "diptych_mine/tables.py": {"pyarrow"},
    "runtime/unpickle.py": {"pickle"},
    "runtime/weight_files.py": {"pickle", "torch.load", "zipfile", "zlib"},
    "runtime/zipped.py": {"tarfile", "zipfile", "zlib"},
    "diptych_serve/export/runner.py": {"onnxruntime"},
    "vision/archives.py": {"tarfile", "zipfile"},
    "vision/backbones/onnx_graph.py": {"onnxruntime"},
    "vision/detectors/proposers/tfjs.py": {"gzip", "tarfile"},
    "vision/features/arrow.py": {"pyarrow"},
    "vision/features/h5.py": {"h5py", "zlib"},
    "vision/features/lmdb.py": {"lmdb"},
    "vision/features/npz.py": {"zipfile"},
    "vision/features/vl_bert.py": {"zipfile"},
    "vision/limited.py": {"subprocess"},
}
# Checksums, what Diptych draws or writes itself and maps again, a name of an exception, a call of the C library.
OTHERS = {
    "data/store/shard.py": {"zlib"},
    "data/store/shards.py": {"zlib"},
    "data/store/store.py": {"zlib"},
    "diptych_mine/keep/joining.py": {"pyarrow"},
    "diptych_mine/keep/tars.py": {"tarfile"},
    "runtime/downloads.py": {"pickle"},
    "runtime/files.py": {"zlib"},
    "runtime/memory.py": {"ctypes"},
    "runtime/processes.py": {"pickle"},
    "inference/galleries/files.py": {"zlib"},
    "diptych_world/drawings/svg.py": {"xml"},
    "diptych_world/web/serve.py": {"gzip"},
    "diptych_world/web/write.py": {"gzip"},
    "tasks/gallery.py": {"np.load"},
    "vision/backbones/opened.py": {"pickle"},
}


def used(path: Path) -> Iterator[str]:
    """The names of LIBRARIES and CALLS that a module uses, `needed("NAME", ...)` included."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS:
                yield called
            if called in ("needed", "import_module", "importlib.import_module", "__import__") and node.args:
                first = node.args[0]
                names = [str(first.value)] if isinstance(first, ast.Constant) else []
        for name in names:
            yield from (library for library in LIBRARIES if f"{name}.".startswith(f"{library}."))


def found() -> dict[str, set[str]]:
    names = {path: path.relative_to(SRC).as_posix().removeprefix("diptych/") for path in SRC.rglob("*.py")}
    by_file = {name: set(used(path)) for path, name in names.items()}
    return {name: libraries for name, libraries in by_file.items() if libraries}


def test_parsers_of_foreign_bytes_are_called_in_the_listed_files() -> None:
    assert found() == PARSERS | OTHERS


def test_the_listed_files_are_named_for_an_audit() -> None:
    text = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert [name for name in PARSERS if name.removesuffix(".py") not in text] == []
