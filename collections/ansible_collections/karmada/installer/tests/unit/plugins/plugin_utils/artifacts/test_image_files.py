# SPDX-License-Identifier: Apache-2.0
"""One file out of layers: as a container would see it, and never from outside of them."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import image_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.image_files import (
    ImageError,
    decompress,
    extract,
)
from ansible_collections.karmada.installer.tests.unit.support.web_server import folder, link, tar
from hypothesis import given, settings
from hypothesis import strategies as st


def layers(*packed: bytes) -> list[io.BytesIO]:
    return [io.BytesIO(each) for each in packed]


def layer(*entries: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    return tar(*entries, compressed=False)


def found(path: str, *packed: bytes) -> bytes:
    into = io.BytesIO()
    extract(layers(*packed), path, into)
    return into.getvalue()


def refused(path: str, *packed: bytes) -> str:
    with pytest.raises(ImageError) as error:
        found(path, *packed)
    return str(error.value)


def test_the_highest_layer_wins() -> None:
    below, above = layer(("bin/tool", b"old"), ("bin/other", b"x")), layer(("./bin/tool", b"new"))
    assert found("/bin/tool", below, above) == b"new"
    assert found("/bin/other", below, above) == b"x"
    assert found("/bin/tool", above, below) == b"old"


def test_a_whiteout_hides_what_is_below_and_nothing_of_its_own_layer() -> None:
    below = layer(("bin/tool", b"old"), ("bin/other", b"x"))
    assert "has no file" in refused("/bin/tool", below, layer(("bin/.wh.tool", b"")))
    assert found("/bin/other", below, layer(("bin/.wh.tool", b""))) == b"x"
    for entries in ([("bin/tool", b"new"), ("bin/.wh.tool", b"")], [("bin/.wh.tool", b""), ("bin/tool", b"new")]):
        assert found("/bin/tool", below, layer(*entries)) == b"new"


def test_an_opaque_folder_hides_all_that_is_below() -> None:
    below, above = layer(("bin/tool", b"old")), layer(("bin/other", b"new"), ("bin/.wh..wh..opq", b""))
    assert "has no file" in refused("/bin/tool", below, above)
    assert found("/bin/other", below, above) == b"new"


def test_a_whiteout_of_a_folder_and_of_nothing() -> None:
    below, above = layer(("opt/a/tool", b"old")), layer((".wh.opt", b""), ("no/such/.wh.thing", b""))
    assert "has no file" in refused("/opt/a/tool", below, above)


@pytest.mark.parametrize(
    ("entries", "path"),
    [
        ([link("bin", "usr/bin"), ("usr/bin/tool", b"it")], "/bin/tool"),
        ([link("bin", "/usr/bin"), ("usr/bin/tool", b"it")], "/bin/tool"),
        ([link("bin", "usr/bin"), ("bin/tool", b"it")], "/usr/bin/tool"),
        ([("opt/v1/tool", b"it"), link("opt/current", "v1"), link("bin/tool", "../opt/current/tool")], "/bin/tool"),
        ([("tool", b"it"), link("bin/tool", "../../../../tool")], "/bin/tool"),
        ([("opt/tool", b"it"), link("bin/tool", "/opt/tool", hard=True)], "/bin/tool"),
        ([("opt/tool", b"it"), link("a", "b"), link("b", "opt/x/../tool"), folder("opt/x")], "/a"),
        ([("../../tool", b"it")], "/tool"),
    ],
    ids=["relative", "absolute", "through", "chain", "above-root", "hard", "dots", "dotted-name"],
)
def test_links_are_followed_inside_the_image(entries: list[tarfile.TarInfo | tuple[str, bytes]], path: str) -> None:
    assert found(path, layer(*entries)) == b"it"
    # the same when links and files are in layers of their own
    assert found(path, *[layer(each) for each in entries]) == b"it"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../etc/passwd", "../../../../../../../../etc/passwd"])
def test_a_link_never_leads_out_of_the_image(target: str) -> None:
    assert "has no file" in refused("/bin/tool", layer(link("bin/tool", target)))
    assert "which it does not have" in refused("/bin/tool", layer(link("bin/tool", target, hard=True)))


def test_links_in_circles_end() -> None:
    assert "circles" in refused("/a", layer(link("a", "b"), link("b", "a")))
    assert "circles" in refused("/a/x", layer(link("a", "b"), link("b", "a")))


def test_only_files_are_taken() -> None:
    pipe = tarfile.TarInfo("bin/tool")
    pipe.type = tarfile.FIFOTYPE
    assert "has no file" in refused("/bin/tool", layer(pipe))
    assert "has no file" in refused("/bin/tool", layer(folder("bin/tool")))
    assert "has no file" in refused("/bin/tool", layer(("bin/tool/x", b"")))


def test_a_file_is_no_folder() -> None:
    assert "not a folder" in refused("/bin/tool", layer(("bin", b"file"), ("bin/tool", b"x")))


def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "MOST_PROGRAM_BYTES", 10)
    assert "larger than" in refused("/tool", layer(("tool", b"x" * 11)))
    monkeypatch.setattr(image_files, "MOST_ENTRIES", 2)
    assert "more than 2 files" in refused("/tool", layer(("a", b""), ("b", b""), ("tool", b"")))


def test_a_bomb_is_noticed_while_it_unpacks() -> None:
    into = io.BytesIO()
    with pytest.raises(ImageError, match="unpacks to more than"):
        decompress(io.BytesIO(gzip.compress(bytes(8 << 20))), "gzip", into, 1 << 20)
    assert into.tell() <= 1 << 20


def test_compressed_streams_may_follow_each_other() -> None:
    into = io.BytesIO()
    decompress(io.BytesIO(gzip.compress(b"one") + gzip.compress(b"two")), "gzip", into)
    assert into.getvalue() == b"onetwo"


@settings(max_examples=30)
@given(st.integers(min_value=1, max_value=60))
def test_a_cut_off_stream_is_noticed(cut: int) -> None:
    packed = gzip.compress(bytes(range(200)) * 3)
    with pytest.raises(ImageError, match="cannot be unpacked"):
        decompress(io.BytesIO(packed[:-cut]), "gzip", io.BytesIO())


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=2000))
def test_no_bytes_are_anything_but_a_refusal(content: bytes) -> None:
    refused("/bin/tool", content)


def test_a_cut_off_layer_is_noticed() -> None:
    whole = layer(("bin/tool", b"x" * 5000))
    for end in (600, 2000, 5000):
        with pytest.raises(ImageError):
            found("/bin/tool", whole[:end])
