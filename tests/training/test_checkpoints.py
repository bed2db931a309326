"""Check that stopped runs continue with identical results, and that bad checkpoints are refused and kept."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import read_safetensors
from crowdshot.training.loop import check_same_run, train
from pools import conv, feature_pool, image_pool, make_job, mlp

RUN = {"iterations": 12, "validate_every": 5, "prior": "one-coin", "augment": "photo", "episodes": 2}


def jobs(**settings):
    given = [{"seed": 1, "steps": 1}, {"seed": 2, "learning_rate": 3e-3}]
    return [make_job(conv(i), **{**RUN, **more, **settings}) for i, more in enumerate(given)]


def same(a, b):
    for one, other in zip(a, b, strict=True):
        assert one.card == other.card
        for name, value in one.module.state_dict().items():
            assert torch.equal(value, other.module.state_dict()[name]), name


@pytest.fixture(scope="module")
def undisturbed():
    reports = []
    return train(jobs(), image_pool(), report=reports.append), reports


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(3, 5, 11), (1, 10), (12,)])
def test_stopped_anywhere_the_result_is_the_same_to_the_bit(undisturbed, tmp_path, stops):
    expected, expected_reports = undisturbed
    file, reports = tmp_path / "run", []
    for stop in stops:
        done = []
        found = train(
            jobs(),
            image_pool(),
            checkpoint=file,
            report=reports.append,
            tick=lambda step, total, done=done: done.append(step),
            stop=lambda stop=stop, done=done: done[-1] >= stop,
        )
        assert done[-1] == stop
        assert (found is None) == (stop < 12)
    if found is None:
        found = train(jobs(), image_pool(), checkpoint=file, report=reports.append)
    same(found, expected)
    assert reports == expected_reports
    assert [p.name for p in tmp_path.iterdir()] == ["run"], "the caller removes it, once the encoders are in safety"
    same(train(jobs(), image_pool(), checkpoint=file), expected)  # the result can be restored until then


@pytest.mark.slow
def test_a_checkpoint_every_few_steps(undisturbed, tmp_path):
    """A run continues from the last multiple of ``checkpoint_every``, and repeats the steps since then."""

    class KilledError(Exception):
        pass

    def kill_at_9(step, total):
        if step == 9:
            raise KilledError

    file, done = tmp_path / "run", []
    with pytest.raises(KilledError):
        train(jobs(), image_pool(), checkpoint=file, checkpoint_every=4, tick=kill_at_9)
    found = train(jobs(), image_pool(), checkpoint=file, tick=lambda step, total: done.append(step))
    assert done == [9, 10, 11, 12]
    same(found, undisturbed[0])


def stopped(path, pool=None, **settings):
    """Return a checkpoint after three steps."""
    done = []
    train(
        jobs(**settings),
        image_pool() if pool is None else pool,
        checkpoint=path,
        tick=lambda step, total: done.append(step),
        stop=lambda: len(done) == 3,
    )
    return path.read_bytes()


def test_a_checkpoint_of_another_run(tmp_path):
    file = tmp_path / "run"
    before = stopped(file)
    for settings, what in (
        ({"learning_rate": 0.5}, "learning_rate was 0.001 and is now 0.5"),
        ({"shots": (1, 3)}, r"shots was \[1, 2\] and is now \[1, 3\]"),
    ):
        with pytest.raises(CrowdshotError, match=what) as error:
            train(jobs(**settings), image_pool(), checkpoint=file)
        assert (error.value.where, error.value.found) == (str(file), next(iter(settings)))
    with pytest.raises(CrowdshotError, match=r"pool was .* and is now"):
        train(jobs(), image_pool(seed=1), checkpoint=file)
    with pytest.raises(CrowdshotError, match="different run"):
        train([make_job(mlp(), **{**RUN, "augment": "none"})], feature_pool(), checkpoint=file)
    with pytest.raises(CrowdshotError, match="precision was 'float32' and is now 'bfloat16'"):
        train(jobs(), image_pool(), checkpoint=file, precision="bfloat16")
    assert file.read_bytes() == before


def test_a_card_with_invalid_recipes():
    with pytest.raises(CrowdshotError, match=r"run is the checkpoint .* shots was None and is now 7"):
        check_same_run(Path("run"), {"recipes": [[]]}, {"recipes": [{"shots": 7}]})


@pytest.mark.parametrize("left", [0, 5, 400, -1])
def test_a_truncated_checkpoint(tmp_path, left):
    file = tmp_path / "run"
    content = stopped(file)
    file.write_bytes(content[:left])
    with pytest.raises(CrowdshotError, match=r"run (is truncated or damaged|is not a safetensors file)"):
        train(jobs(), image_pool(), checkpoint=file)
    assert file.read_bytes() == content[:left]


@pytest.mark.parametrize("iteration", [float("inf"), float("nan"), -1, 2.5, True, "3", None, [3]])
def test_a_checkpoint_without_its_number_of_iterations(tmp_path, iteration):
    file = tmp_path / "run"
    stopped(file)
    tensors, card = read_safetensors(file, "checkpoint")
    card = {name: value for name, value in card.items() if name != "sha256"}
    save_file(tensors, file, {"crowdshot": json.dumps({**card, "iteration": iteration})})
    with pytest.raises(CrowdshotError, match=r"run is damaged or incomplete .*iteration"):
        train(jobs(), image_pool(), checkpoint=file)


def test_another_file_in_its_place(tmp_path):
    file = tmp_path / "run"
    file.write_text("my notes")
    with pytest.raises(CrowdshotError, match=r"is not a safetensors file \(.*\), expected a checkpoint"):
        train(jobs(), image_pool(), checkpoint=file)
    assert file.read_text() == "my notes"


@pytest.mark.parametrize("where", ["write", "rename"])
def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch, undisturbed, where):
    file = tmp_path / "run"
    good = stopped(file)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def half(path, content):
        with path.open("wb") as opened:
            opened.write(content[: len(content) // 2])
        full()

    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "write_bytes", half) if where == "write" else (os, "replace", full)))
        with pytest.raises(CrowdshotError, match=r"run could not be written .No space left on device"):
            train(jobs(), image_pool(), checkpoint=file)
    assert file.read_bytes() == good
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    same(train(jobs(), image_pool(), checkpoint=file), undisturbed[0])
