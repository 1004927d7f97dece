"""Read a member of a zip file that may be hostile."""

import tarfile
import zlib
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from diptych.runtime.errors import DataError

DAMAGED = (BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError)  # of reading a damaged archive
NAMES = {12: "bzip2", 14: "LZMA"}


def read_zipped(archive: ZipFile, member: str | ZipInfo) -> bytes:
    """Return the content of a member. It takes no more memory than the size in the member's header.

    The caller checks this size first. Raises DataError for other compressions than deflate, because their decoders
    cannot be limited; BadZipFile if the content differs from its checksum; KeyError for a missing member.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        method = NAMES.get(info.compress_type, f"method {info.compress_type}")
        where = f"{archive.filename}: " if archive.filename else ""
        raise DataError(f"{where}found {info.filename} compressed with {method}, expected deflate; make the zip again")
    with archive.open(info) as file:
        return file.read(info.file_size)  # the decoder stops at this size, unlike in `archive.read`
