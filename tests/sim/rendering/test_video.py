"""Files that decode to what was written, with what a browser asks for; and the pictures that go into them."""

import sys
from fractions import Fraction

import av
import numpy as np
import pytest
import torch

from temporeal.sim.rendering.video import Video, grey_depth, label, read_video, tile

SUFFIXES = (".webm", ".mp4")


def moving(count=12, height=48, width=64):
    """A red square that crosses a gradient."""
    y, x = np.mgrid[0:height, 0:width]
    for i in range(count):
        frame = np.stack((x * 255 // width, y * 255 // height, np.full_like(x, 20 * i % 256)), -1).astype(np.uint8)
        frame[12:28, 2 * i : 2 * i + 16] = (220, 30, 40)
        yield frame


def psnr(a, b):
    """Peak signal-to-noise ratio, dB."""
    return 10 * np.log10(255**2 / ((a.astype(float) - b.astype(float)) ** 2).mean())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_video_decodes_to_its_frames(tmp_path, suffix):
    path = tmp_path / f"clip{suffix}"
    with Video(path, 25) as video:
        for frame in moving():
            video.write(frame)
    back = list(read_video(path))
    assert len(back) == video.frames == 12
    assert min(psnr(a, b) for a, b in zip(moving(), back)) > 29  # 4:2:0 halves colour: the square's border costs most
    assert np.abs(back[5][20, 18].astype(int) - (220, 30, 40)).max() < 12  # the colour, not another matrix's
    others = np.roll(np.arange(12), 6)
    assert all(psnr(a, back[j]) < 25 for a, j in zip(moving(), others))


@pytest.mark.parametrize(("suffix", "codec"), [(".webm", "vp9"), (".mp4", "h264")])
def test_what_a_browser_asks_for(tmp_path, suffix, codec):
    path = tmp_path / f"clip{suffix}"
    with Video(path, Fraction(30000, 1001)) as video:
        for frame in moving():
            video.write(torch.from_numpy(frame))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.codec.canonical_name == codec and len(container.streams) == 1
        assert stream.codec_context.pix_fmt == "yuv420p" and stream.average_rate == pytest.approx(29.97, abs=0.01)
        assert stream.codec_context.colorspace == 1 and stream.codec_context.color_range == 1
        stamps = [float(frame.time) for frame in container.decode(video=0)]
    assert np.diff(stamps) == pytest.approx(np.full(11, 1001 / 30000), abs=1.1e-3)  # WebM counts milliseconds
    if suffix == ".mp4":
        raw = path.read_bytes()
        assert 0 < raw.find(b"moov") < raw.find(b"mdat")  # the index comes first


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_odd_pictures_are_widened_by_their_border(tmp_path, suffix):
    path = tmp_path / f"odd{suffix}"
    with Video(path, 10, size=(65, 47)) as video:
        for frame in moving(3, 47, 65):
            video.write(frame)
    back = list(read_video(path))
    assert back[0].shape == (48, 66, 3)
    assert min(psnr(a, b[:47, :65]) for a, b in zip(moving(3, 47, 65), back)) > 29


def test_the_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "clip.webm"
    video = Video(path, 10)
    video.write(next(moving()))
    assert not path.exists()
    video.close()
    video.close()
    assert [p.name for p in tmp_path.iterdir()] == ["clip.webm"]
    with pytest.raises(ValueError, match="is closed"):
        video.write(next(moving()))


def test_a_video_that_ends_by_an_error_keeps_what_it_has(tmp_path):
    path = tmp_path / "clip.mp4"
    with pytest.raises(KeyError), Video(path, 10) as video:
        video.write(next(moving()))
        raise KeyError("the flight went wrong")
    assert len(list(read_video(path))) == 1


@pytest.mark.parametrize("size", [None, (64, 48)])
def test_a_video_without_frames_is_an_error_and_leaves_no_file(tmp_path, size):
    with pytest.raises(ValueError, match="has no frame"), Video(tmp_path / "clip.webm", 10, size):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyError), Video(tmp_path / "clip.webm", 10, size):
        raise KeyError("before the first frame")


@pytest.mark.parametrize(("name", "fps", "error", "words"), [
    ("clip.avi", 10, ValueError, r"one of .webm, .mp4; got .*clip.avi"),
    ("clip.webm", 0, ValueError, "fps lies between 0 and 1000, got 0"),
    ("clip.webm", "25", ValueError, "fps lies between"),
    ("nowhere/clip.webm", 10, FileNotFoundError, "no folder .*nowhere"),
])  # fmt: skip
def test_wrong_arguments_are_refused(tmp_path, name, fps, error, words):
    with pytest.raises(error, match=words):
        Video(tmp_path / name, fps)


def test_wrong_frames_are_refused(tmp_path):
    with Video(tmp_path / "clip.webm", 10) as video:
        video.write(next(moving()))
        with pytest.raises(ValueError, match="64 x 48 pixels, the frame 48 x 64"):
            video.write(np.zeros((64, 48, 3), dtype=np.uint8))
        with pytest.raises(ValueError, match=r"uint8 \[H, W, 3\], got float64 \[48, 64, 3\]"):
            video.write(np.zeros((48, 64, 3)))
    assert video.frames == 1
    with pytest.raises(ValueError, match="2 to 8192"):
        Video(tmp_path / "clip.webm", 10, size=(1, 48))


def test_without_pyav_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.delitem(sys.modules, "temporeal.sim.rendering.video")
    with pytest.raises(ModuleNotFoundError, match="pip install av"):
        import temporeal.sim.rendering.video  # noqa: F401


# ---- pictures


def test_tiles_lie_row_by_row_and_are_scaled():
    pictures = np.stack([np.full((2, 3, 3), value, dtype=np.uint8) for value in (10, 20, 30, 40, 50)])
    sheet = tile(torch.from_numpy(pictures), columns=2, scale=2, gap=1)
    assert sheet.shape == (3 * 4 + 2, 2 * 6 + 1, 3)
    assert sheet[1, 1, 0] == 10 and sheet[1, 8, 0] == 20 and sheet[6, 1, 0] == 30 and sheet[11, 5, 0] == 50
    assert not sheet[11:, 7:].any() and not sheet[4].any() and not sheet[:, 6].any()
    assert tile(pictures).shape == (2 * 2, 3 * 3, 3)  # 5 pictures: 3 columns


@pytest.mark.parametrize(("images", "kwargs", "words"), [
    (np.zeros((0, 2, 2, 3), np.uint8), {}, "K at least 1"), (np.zeros((2, 2, 3), np.uint8), {}, "K, H, W, 3"),
    (np.zeros((1, 2, 2, 3), np.uint8), {"columns": 0}, "columns is a whole number from 1"),
    (np.zeros((1, 2, 2, 3), np.uint8), {"scale": 1.5}, "scale is a whole number from 1"),
])  # fmt: skip
def test_wrong_tiles_are_refused(images, kwargs, words):
    with pytest.raises(ValueError, match=words):
        tile(images, **kwargs)


def test_depth_is_white_near_black_far_and_where_there_is_no_answer():
    grey = grey_depth(torch.tensor([[0.0, 1.0, 2.0, 3.0, 9.0, float("inf")]]), 1.0, 3.0)
    assert grey.shape == (1, 6, 3) and grey[0, :, 0].tolist() == [0, 255, 128, 0, 0, 0]
    with pytest.raises(ValueError, match="near < far"):
        grey_depth(torch.ones(1, 1), 2.0, 1.0)


@pytest.mark.parametrize(("corner", "rows", "columns"), [
    ("top left", slice(0, 40), slice(0, 100)), ("bottom right", slice(200, 240), slice(220, 320)),
])  # fmt: skip
def test_text_goes_into_its_corner_of_a_copy(corner, rows, columns):
    frame = np.full((240, 320, 3), 90, dtype=np.uint8)
    out = label(frame, ("t = 1 s", "satisfied"), color=(0, 255, 0), corner=corner)
    assert (frame == 90).all()
    changed = (out != frame).any(-1)
    assert changed.sum() > 150
    assert changed[rows, columns].sum() == changed.sum()
    assert (out[..., 1] > 200).any() and (out == 0).all(-1).any()  # the text, and its outline
    with pytest.raises(ValueError, match="corner is top or bottom"):
        label(frame, "x", corner="middle")
    with pytest.raises(ValueError, match=r"a frame is uint8 \[H, W, 3\], got float64 \[240, 320, 3\]"):
        label(frame / 255, "x")
