"""An HDF5 file of somebody else's leads nowhere, and states no size that it does not have."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats import hdf5
from temporeal.robots.handed_over.files import Refused

h5py = pytest.importorskip("h5py")


def external_link(file, folder):
    with h5py.File(folder / "secret.hdf5", "w") as other:
        other["x"] = np.zeros(3)
    file["x"] = h5py.ExternalLink(str(folder / "secret.hdf5"), "/x")


def soft_link(file, folder):
    file["y"] = np.zeros(3)
    file["x"] = h5py.SoftLink("/y")


def external_bytes(file, folder):
    (folder / "secret").write_bytes(b"\0" * 24)
    file.create_dataset("x", (3,), "f8", external=[(str(folder / "secret"), 0, 24)])


def virtual(file, folder):
    with h5py.File(folder / "secret.hdf5", "w") as other:
        other["x"] = np.zeros(3)
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "secret.hdf5"), "x", (3,))
    file.create_virtual_dataset("x", layout)


def bomb(file, folder):
    file.create_dataset("x", (1 << 40,), "f8", chunks=(1024,), compression="gzip")


def references(file, folder):
    file["x"] = np.array([file.ref], h5py.ref_dtype)


def table(file, folder):
    file["x"] = np.zeros(3, [("a", "f8"), ("b", "f8")])


CASES = {external_link: "is a link to", soft_link: "is a link to '/y'", external_bytes: "in another file",
         virtual: "in another file", bomb: "unpacks to 8,796,093,022,208 bytes", references: "numbers are needed",
         table: "numbers are needed"}


@pytest.mark.parametrize(("make", "says"), CASES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_what_leads_elsewhere_or_is_no_array_of_numbers_is_refused(tmp_path, make, says):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        make(file, tmp_path)
    with hdf5.opened(tmp_path / "a.hdf5") as file, pytest.raises((Refused, DataError), match=says):
        hdf5.array(file, "x")


def test_filters_that_would_load_a_program_are_refused(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((10,))
        plan.set_filter(307, h5py.h5z.FLAG_OPTIONAL)  # bzip2, a plug-in
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((10,)), plan)
    with hdf5.opened(tmp_path / "a.hdf5") as file, pytest.raises(Refused, match="filter 307"):
        hdf5.array(file, "x")


def test_texts_bytes_and_attributes_are_read(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["mask"] = np.array([b"demo_1", b"demo_2"])
        file["names"] = np.array(["a", "bc"], h5py.string_dtype())
        rows = file.create_dataset("jpeg", (2,), h5py.vlen_dtype(np.uint8))
        rows[0], rows[1] = np.arange(3, dtype=np.uint8), np.arange(5, dtype=np.uint8)
        file.attrs.update(text="{}", number=3, row=np.arange(3))
        file.attrs.create("pointer", file.ref, dtype=h5py.ref_dtype)
    with hdf5.opened(tmp_path / "a.hdf5") as file:
        assert hdf5.texts(file, "mask") == ["demo_1", "demo_2"] and hdf5.texts(file, "names") == ["a", "bc"]
        assert [len(row) for row in hdf5.blobs(file, "jpeg")] == [3, 5]
        assert hdf5.attribute(file, "number") == 3 and hdf5.attribute(file, "row").tolist() == [0, 1, 2]
        assert hdf5.json_attribute(file, "text") == {} and hdf5.attribute(file, "none", 5) == 5
        with pytest.raises(Refused, match="attribute 'pointer' is of object"):
            hdf5.attribute(file, "pointer")
        with pytest.raises(DataError, match="has no 'x'; it has: jpeg, mask, names"):
            hdf5.group(file, "x")


def test_a_file_that_keeps_the_library_busy_is_refused_by_its_trial(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["x"] = np.zeros(3)
    hdf5.tried(tmp_path / "a.hdf5")
    with pytest.raises(Refused, match="to walk through it takes more than 0 s, tried in a process of its own"):
        hdf5.tried(tmp_path / "a.hdf5", least_s=0.01)
