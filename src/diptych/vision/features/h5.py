"""Read arrays from h5 files of other programs: numbers in contiguous or chunked storage, reached by hard links.

A hostile h5 file could expose any file of the user, through external links, external storage or virtual datasets. Its
compressed chunks could also unpack to more memory than the header states. Such datasets raise an error before they are
read. Files are read in a separate process (`python -m diptych.vision.features.h5`, see vision/limited.py). So a crash
of the library, an endless loop or excessive memory ends only that process, and not the command.
"""

import atexit
import json
import math
import os
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np

from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import refuse_endless
from diptych.vision.features.raw import Array, check_size, needed, refuse
from diptych.vision.limited import ALIGNED, Ended, LimitedProcesses, Reply, Room, Values, answer

PARTS = 4000  # maximum number of files in a set: Unified VLP's release has 3 for each of 1,000 parts, and a few more
MOST_CHUNKS = 4096  # maximum number of chunks of a dataset
AHEAD = 2  # number of further images whose arrays are requested while an image is processed
MOST_ENDED = 3  # a file that has crashed 3 processes is not read again
REWRITE = "write the file again, with its arrays in it"
Arrays = Mapping[Path, Array | None]  # file -> its array, or None if it has none
NONE: Arrays = {}


class OpenFiles:
    """A set of h5 files that a separate process reads.

    The process keeps the most recently used files open while it gets requests.
    """

    def __init__(self) -> None:
        self._ended = Counter[Path]()
        self._ahead: dict[tuple[str, *tuple[Path, ...]], Future[Arrays]] = {}

    def names(self, path: Path) -> list[str]:
        """Return the names at the top level of a file. Raises DataError if it cannot be read."""
        listed = self._ask("names", [path], "", str(path))[path]
        return [str(name) for name in json.loads(b"[]" if listed is None else listed.tobytes())]

    def find(self, path: Path, name: str, where: str, read: Arrays = NONE) -> Array | None:
        """Return the array `name` of a file, or None if the file has no such array.

        Raises DataError.
        """
        return (read if path in read else self.each([path], name, where))[path]

    def array(self, path: Path, name: str, where: str, read: Arrays = NONE) -> Array:
        """Like `find`, but raise DataError if the file has no array `name`."""
        if (numbers := self.find(path, name, where, read)) is None:
            refuse(where, f"no {name} in {path}", "this array, as in the other parts", "download that file again")
        return numbers

    def each(self, paths: Sequence[Path], name: str, where: str) -> Arrays:
        """Return the array `name` of each file, or None.

        One request for three files takes a third of the time of three requests.
        """
        ahead = self._ahead.pop((name, *paths), None)
        try:
            return ahead.result() if ahead is not None else self._ask("each", paths, name, where) if paths else {}
        except Ended:  # a file crashed the process: read each file separately, so that the error names the right one
            return {path: self.find(path, name, where) for path in paths}

    def expect(self, paths: Sequence[Path], name: str, where: str) -> None:
        """Request arrays for a later call of `each` with the same arguments.

        The later call raises the request's errors.
        """
        if len(self._ahead) > AHEAD:  # drop requests whose results were not used
            self._ahead.clear()
        if paths:
            self._ahead[name, *paths] = _thread().submit(self._ask, "each", paths, name, where)

    def _ask(self, what: str, paths: Sequence[Path], name: str, where: str) -> Arrays:
        path = paths[0]
        needed("h5py", f"{path.name}, an h5,")
        damaged, remedy = f"unreadable data in {path}", "download the file again, or remove it"
        if self._ended[path] == MOST_ENDED:
            refuse(where, f"{damaged}, which crashed {MOST_ENDED} processes", "a file that HDF5 can read", remedy)
        folder = "/" if path.is_absolute() else os.getcwd()
        request = {"what": what, "paths": [str(one) for one in paths], "folder": folder, "name": name, "where": where}
        try:
            return dict(zip(paths, _readers().ask(request)[0]["parts"], strict=True))
        except (Ended, LookupError, ValueError) as error:
            if len(paths) > 1:
                raise Ended from None
            self._ended[path] += 1
            refuse(where, f"{damaged} (HDF5 {error})", "data that HDF5 can read", remedy)


@cache
def _readers() -> LimitedProcesses:
    """Return the pool of one process that reads h5 files for this process."""
    readers = LimitedProcesses("diptych.vision.features.h5", {"DataError": DataError}, 1)
    atexit.register(readers.close)
    return readers


@cache
def _thread() -> ThreadPoolExecutor:
    """Return the thread that waits for the results of early requests, in their order."""
    return ThreadPoolExecutor(1, thread_name_prefix="h5")


def _reading(path: Path, where: str = "") -> AbstractContextManager[None]:
    problem = f"{where}: found unreadable data in {path}" if where else f"{path}: not a readable h5 file"
    # h5py raises OSError, RuntimeError, KeyError, TypeError and more for damaged files
    return explained(DataError, problem, "download the file again", Exception)


@cache
def _may_be_open() -> int:
    """Raise the operating system's limit of open files if possible. Return how many h5 files may be open at once.

    Successive images are in different files of a set. If few files could stay open, each image would reopen a file.
    """
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * PARTS if most == resource.RLIM_INFINITY else min(2 * PARTS, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted // 2


@dataclass
class FilesHere:
    """A reader of h5 files in this process. The most recently used files stay open, up to the limit."""

    files: OrderedDict[Path, tuple[Any, tuple[int, ...]]] = field(default_factory=OrderedDict)

    def file(self, path: Path) -> Any:
        h5py, place = needed("h5py", f"{path.name}, an h5,"), path.absolute()
        with _reading(path):
            now = os.stat(path)
            state = now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns
            if place in self.files and self.files[place][1] != state:
                self.files.pop(place)[0].close()
            if place not in self.files:
                refuse_endless(path)
                self.files[place] = h5py.File(path, "r"), state
        self.files.move_to_end(place)
        if len(self.files) > _may_be_open():
            self.files.popitem(last=False)[1][0].close()
        return self.files[place][0]

    def names(self, path: Path) -> list[str]:
        with _reading(path):  # h5py returns a name as bytes if it is not UTF-8
            return [name if isinstance(name, str) else name.decode("utf-8", "replace") for name in self.file(path)]

    def each(self, paths: Sequence[Path], name: str, where: str, make: Callable[..., Array] = np.empty) -> Reply:
        """Return the arrays of several files as the `parts` of a reply. For a missing array, the part is None."""
        sets = [self.dataset(path, name, where) for path in paths]
        # Read once, because these properties are slow.
        forms = [None if one is None else (one.shape, one.dtype) for one in sets]
        begins = [0, *accumulate(-(-math.prod(f[0]) * f[1].itemsize // ALIGNED) * ALIGNED if f else 0 for f in forms)]
        content = make((begins[-1],), np.dtype(np.uint8))
        for path, dataset, form, begin in zip(paths, sets, forms, begins, strict=False):
            if form is not None:
                array: Array = np.ndarray(*form, content, begin)
                with _reading(path, where):
                    dataset.read_direct(array) if array.size and array.shape else array.fill(dataset[()])
        return {"parts": [form and (form[0], form[1].str) for form in forms]}, content

    def dataset(self, path: Path, name: str, where: str) -> Any:
        """Return a dataset, or None if there is none. Raises DataError for links to other files."""
        with _reading(path):
            links = self.file(path).id.links
            for part in accumulate(name.split("/"), "{}/{}".format):
                if not part or not links.exists(part.encode()):
                    return None
                if links.get_info(part.encode()).type != needed("h5py.h5l", "an h5").TYPE_HARD:
                    refuse(f"{path}, {name}", "a link to another place", "an array in this file", REWRITE)
        with _reading(path, where):
            dataset = self.file(path)[name]
            _check_storage(dataset, where, path)
            return dataset

    def close(self) -> None:
        while self.files:
            self.files.popitem()[1][0].close()


def _check_storage(dataset: Any, where: str, path: Path) -> None:
    """Raise DataError if a dataset is stored in another file, or is larger than allowed."""
    h5py = needed("h5py", "an h5")
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None or dataset.dtype.kind not in "fiub":
        refuse(where, f"no array of numbers in {path}", "an array")
    stored = dataset.id.get_create_plist()
    layout = stored.get_layout()
    if layout not in (h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED) or stored.get_external_count():
        refuse(where, f"an array in {path} whose numbers are in another file", "numbers in this file", REWRITE)
    check_size(dataset.nbytes, where, name=f"{path.name}")
    if layout == h5py.h5d.CHUNKED and dataset.size:
        _check_chunks(dataset, stored, where, path)


def _check_chunks(dataset: Any, stored: Any, where: str, path: Path) -> None:
    """Decompress each chunk, up to the size in the header. Raise DataError if a chunk is larger."""
    z = needed("h5py", "an h5").h5z
    size = math.prod(dataset.chunks) * dataset.dtype.itemsize
    check_size(size, where, name=f"a chunk of {path.name}")
    filters = [stored.get_filter(n)[0] for n in range(stored.get_nfilters())]
    if filters != [one for one in (z.FILTER_SHUFFLE, z.FILTER_DEFLATE, z.FILTER_FLETCHER32) if one in filters]:
        refuse(where, f"an array in {path} with the filters {filters}", "shuffle, gzip and fletcher32", REWRITE)
    count = math.prod(-(-side // chunk) for side, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    if count > MOST_CHUNKS:
        refuse(where, f"an array in {path} of {count} chunks", f"at most {MOST_CHUNKS}", REWRITE)
    gzipped = z.FILTER_DEFLATE in filters
    for slices in dataset.iter_chunks() if filters else ():
        begin = tuple(one.start for one in slices)
        chunk = dataset.id.get_chunk_info_by_coord(begin)
        if chunk.byte_offset is None:
            continue
        if not chunk.size:  # HDF5 would end the process
            refuse(where, f"a chunk in {path} of 0 bytes", "the bytes of its numbers", REWRITE)
        # A chunk of incompressible numbers has at most this many bytes.
        if chunk.size > 2 * size + 4096 or (gzipped and _unpacked(dataset.id.read_direct_chunk(begin)[1], size) > size):
            refuse(where, f"a chunk in {path} of more bytes than its array", f"{size} bytes as in its header", REWRITE)


def _unpacked(content: bytes, most: int) -> int:
    """Return the number of bytes that compressed bytes hold; `most` + 1 if they hold more."""
    return len(zlib.decompressobj().decompress(content, most + 1))


def _main() -> None:
    files = FilesHere()

    def reply(request: Values, _: IO[bytes], room: Room) -> Reply:
        os.chdir(request["folder"])
        paths = [*map(Path, request["paths"])]
        if request["what"] == "names":
            listed = np.frombuffer(json.dumps(files.names(paths[0])).encode(), np.uint8)
            return {"parts": [(listed.shape, listed.dtype.str)]}, listed
        return files.each(paths, request["name"], request["where"], room.make)

    answer(reply, files.close)  # HDF5 locks open files, so they are closed while there are no requests


if __name__ == "__main__":
    _main()
