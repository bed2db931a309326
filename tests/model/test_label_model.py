"""The label model: exact values, an independent oracle, NumPy against torch, symmetries, and unusual crowds."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import read_card, write_arrays
from crowdshot.model import label_model
from crowdshot.model.label_model import SHIPPED, infer, load_network, save_network, shipped_network
from crowdshot.model.problem import posterior_of, problem_of
from crowdshot.training import simulated_crowds
from crowdshot_paper.label_model_training import total, untrained
from crowdshot_paper.label_model_training import training_problem as problem_of_crowds
from plain_label_model import PlainLabelModel

SEEDS = st.integers(0, 2**32 - 1)
MANY = settings(max_examples=60, deadline=None)
SOME = settings(max_examples=40, deadline=None)


def some_network(seed=0, rounds=3, hidden=6):
    """Return a network with random weights, all of whose inputs matter."""
    randomness = np.random.default_rng(seed)
    fresh = untrained(seed, rounds, hidden)
    return {name: value + 0.3 * randomness.normal(size=value.shape) for name, value in fresh.items()}


NETWORK = some_network()


def crowd(seed, most_items=12, most_annotators=7, most_classes=5):
    """Return item, annotator, label (L,) and (N, R, K) of a small crowd; some items and annotators have no label."""
    randomness = np.random.default_rng(seed)
    N, R, K = (
        int(randomness.integers(low, high + 1))
        for low, high in ((1, most_items), (1, most_annotators), (2, most_classes))
    )
    truth = randomness.integers(K, size=N)
    item, annotator = np.nonzero(randomness.random((N, R)) < randomness.uniform(0.2, 1))
    if not len(item):
        item, annotator = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    label = np.where(randomness.random(len(item)) < 0.7, truth[item], randomness.integers(K, size=len(item)))
    return (item, annotator, label), (N, R, K)


def posterior_matrix(triples, sizes, network=NETWORK, **given):
    """Return posteriors (N, K), 0 for classes that the problem leaves out."""
    problem = problem_of(*triples, *sizes, **given)
    out = np.zeros((sizes[0], sizes[2]))
    out[problem.pairs()] = posterior_of(problem, infer(problem, network)[-1])
    return out


def as_tensors(network, dtype=torch.float64):
    return {name: torch.tensor(value, dtype=dtype) for name, value in network.items()}


# ---- known answers --------------------------------------------------------------------------------------------------


def triples_of(matrix):
    """Return item, annotator and label (L,) of a label matrix (N, R), -1 = missing."""
    matrix = np.array(matrix)
    item, annotator = np.nonzero(matrix >= 0)
    return item, annotator, matrix[item, annotator]


# Label matrices (items in rows, annotators in columns), side information, and the posteriors of the shipped network.
CROWDS = {
    "two classes": (
        [[0, 0, 1], [1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, -1], [-1, 1, 0]],
        2,
        {},
        [
            [0.609452342198, 0.390547657802],
            [0.220787880027, 0.779212119973],
            [0.41826756693, 0.58173243307],
            [0.404482592491, 0.595517407509],
            [0.733880281183, 0.266119718817],
            [0.514505117017, 0.485494882983],
        ],
    ),
    "three ordered classes with history and a known class": (
        [[0, 1, 0, -1], [2, 2, 1, 2], [1, 1, -1, 0], [0, 0, 0, 0], [-1, 2, 0, 1]],
        3,
        {"known": [-1, -1, 1, -1, -1], "right": [9.0, 3.0, 0.0, 1.0], "wrong": [1.0, 2.0, 0.0, 4.0], "ordered": True},
        [
            [0.679646256472, 0.272735844307, 0.0476178992215],
            [0.0411135541365, 0.191302468055, 0.767583977808],
            [0.0, 1.0, 0.0],
            [0.869709511159, 0.0966918856437, 0.033598603197],
            [0.302019024591, 0.329268459178, 0.368712516231],
        ],
    ),
    "four classes, one label or none for some items": (
        [[3, 3], [0, 1], [2, -1], [-1, -1], [1, 1], [0, 0], [2, 3]],
        4,
        {},
        [
            [0.076281905067, 0.0762903827619, 0.0866434245695, 0.760784287602],
            [0.414858521678, 0.419003087821, 0.0848591832633, 0.0812792072376],
            [0.119438000603, 0.119442854435, 0.623236824846, 0.137882320115],
            [0.257046686421, 0.256958611373, 0.228534171172, 0.257460531034],
            [0.0867405690966, 0.759671964003, 0.0769273730317, 0.0766600938687],
            [0.759925340369, 0.0865767209137, 0.0768746891335, 0.0766232495839],
            [0.082268767412, 0.082283599718, 0.410741574862, 0.424706058008],
        ],
    ),
}


@pytest.mark.parametrize("name", CROWDS)
def test_the_shipped_network_gives_exactly_these_posteriors(name):
    matrix, K, more, expected = CROWDS[name]
    more = {key: np.array(value) if isinstance(value, list) else value for key, value in more.items()}
    found = posterior_matrix(triples_of(matrix), (*np.shape(matrix), K), shipped_network(), **more)
    np.testing.assert_allclose(found, expected, atol=1e-9, rtol=0)


def plain_model(triples, sizes, network, more):
    labels = list(zip(*(x.tolist() for x in triples), strict=True))
    more = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in more.items()}
    return PlainLabelModel(labels, *sizes, network, **more)


@pytest.mark.parametrize("network", [NETWORK, shipped_network()], ids=["any network", "shipped"])
@given(SEEDS, st.booleans())
@SOME
def test_equals_the_loops_written_from_the_formulas(network, seed, more):
    """Scores after every round, up to a constant for each item, and the posteriors."""
    triples, sizes = crowd(seed)
    side = side_information(seed, sizes) if more else {}
    plain = plain_model(triples, sizes, network, side)
    found = infer(problem_of(*triples, *sizes, **side), network)
    for ours, theirs in zip(found, plain.scores(), strict=True):
        ours = ours.reshape(sizes[0], sizes[2])
        theirs = np.array(theirs)
        np.testing.assert_allclose(
            ours - ours.mean(1, keepdims=True), theirs - theirs.mean(1, keepdims=True), atol=1e-8, rtol=0
        )
    np.testing.assert_allclose(posterior_matrix(triples, sizes, network, **side), plain.posteriors(), atol=1e-8, rtol=0)


# ---- NumPy and torch ------------------------------------------------------------------------------------------------


def side_information(seed, sizes):
    """Return side information: some known classes, annotators' history, and an order of classes."""
    randomness, (N, R, K) = np.random.default_rng([seed, 1]), sizes
    return {
        "known": np.where(randomness.random(N) < 0.3, randomness.integers(K, size=N), -1),
        "right": randomness.integers(20, size=R).astype(float),
        "wrong": randomness.integers(5, size=R).astype(float),
        "ordered": True,
    }


def as_crowds(triples, sizes, given):
    """Return the same crowd as the training code represents it."""
    N, R, K = sizes
    told = {name: torch.from_numpy(value) for name, value in given.items() if name != "ordered"}
    return simulated_crowds.Crowds(
        *map(torch.from_numpy, triples),
        truth=torch.zeros(N, dtype=torch.int64),
        crowd_of_item=torch.zeros(N, dtype=torch.int64),
        crowd_of_annotator=torch.zeros(R, dtype=torch.int64),
        n_classes=K,
        n_crowds=1,
        ordered=torch.ones(1) if given.get("ordered") and K > 2 else None,  # two classes have none
        **told,
    )


@MANY
@given(SEEDS, st.booleans())
def test_numpy_and_torch_agree(seed, more):
    triples, sizes = crowd(seed)
    given = side_information(seed, sizes) if more else {}
    here = infer(problem_of(*triples, *sizes, **given), NETWORK)
    crowds = as_crowds(triples, sizes, given)
    there = infer(problem_of_crowds(crowds, torch.float64), as_tensors(NETWORK), torch, total)
    assert len(here) == len(there) == 4
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(a, b.numpy(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_crowds_in_a_batch_equal_single_crowds(seed):
    world = replace(simulated_crowds.World(), items=(4, 60), annotators=(3, 20), gold_crowds=0.5, history_crowds=0.5)
    c = simulated_crowds.draw(world, 600, torch.Generator().manual_seed(seed))
    together = infer(problem_of_crowds(c, torch.float64), as_tensors(NETWORK), torch, total)[-1].reshape(
        -1, c.n_classes
    )
    assert c.n_crowds > 1
    for crowd_number in range(c.n_crowds):
        items, people = (torch.nonzero(of == crowd_number)[:, 0] for of in (c.crowd_of_item, c.crowd_of_annotator))
        mine = (c.crowd_of_item[c.item] == crowd_number).numpy()
        triples = (
            c.item.numpy()[mine] - int(items[0]),
            c.annotator.numpy()[mine] - int(people[0]),
            c.label.numpy()[mine],
        )
        more = {
            "known": c.known[items].numpy(),
            "right": c.right[people].double().numpy(),
            "wrong": c.wrong[people].double().numpy(),
            "ordered": bool(c.ordered[crowd_number]),
        }
        alone = infer(problem_of(*triples, len(items), len(people), c.n_classes, **more), NETWORK)[-1]
        np.testing.assert_allclose(together[items].numpy().ravel(), alone, atol=1e-9, rtol=0)


def test_gradients():
    triples, sizes = crowd(5, 4, 3, 3)
    problem = problem_of_crowds(as_crowds(triples, sizes, side_information(5, sizes)), torch.float64)
    network = as_tensors(some_network(1, rounds=2, hidden=2))
    for value in network.values():
        value.requires_grad_()

    def scores(*values):
        return tuple(infer(problem, dict(zip(network, values, strict=True)), torch, total))

    assert torch.autograd.gradcheck(scores, tuple(network.values()), eps=1e-6, atol=1e-5, fast_mode=True)


# ---- neither names nor order ----------------------------------------------------------------------------------------


@MANY
@given(SEEDS)
def test_names_and_order_change_nothing(seed):
    (item, annotator, label), (N, R, K) = crowd(seed)
    randomness = np.random.default_rng(seed + 1)
    as_it_is = posterior_matrix((item, annotator, label), (N, R, K))
    items, people, classes, rows = (randomness.permutation(n) for n in (N, R, K, len(item)))
    changed = (items[item][rows], people[annotator][rows], classes[label][rows])
    np.testing.assert_allclose(posterior_matrix(changed, (N, R, K))[items][:, classes], as_it_is, atol=1e-9, rtol=0)


@MANY
@given(SEEDS)
def test_names_and_order_change_nothing_with_many_classes(seed):
    (item, annotator, label), (N, R, K) = crowd(seed, most_classes=30)
    randomness = np.random.default_rng(seed + 1)
    as_it_is = posterior_matrix((item, annotator, label), (N, R, K), named_only=True)
    items, people, classes, rows = (randomness.permutation(n) for n in (N, R, K, len(item)))
    changed = (items[item][rows], people[annotator][rows], classes[label][rows])
    found = posterior_matrix(changed, (N, R, K), named_only=True)[items][:, classes]
    np.testing.assert_allclose(found, as_it_is, atol=1e-9, rtol=0)


@SOME
@given(SEEDS)
def test_annotators_without_labels_change_nothing(seed):
    triples, (N, R, K) = crowd(seed)
    more = posterior_matrix(triples, (N + 3, R + 2, K))
    labelled = np.unique(triples[0])
    np.testing.assert_allclose(more[labelled], posterior_matrix(triples, (N, R, K))[labelled], atol=1e-9, rtol=0)


# ---- leave one out --------------------------------------------------------------------------------------------------


def label_inputs(triples, sizes):
    """Return the inputs of the network ``label``, (rounds, L, inputs), caught in `xp.stack`."""
    caught = []

    def stack(values, axis):
        together = np.stack(values, axis)
        caught.append(together)
        return together

    names = ("log", "exp", "sqrt", "tanh", "concatenate", "where", "isnan", "einsum")
    xp = SimpleNamespace(**{name: getattr(np, name) for name in names})
    xp.stack = stack
    infer(problem_of(*triples, *sizes), NETWORK, xp)
    return np.stack([each for each in caught if each.shape == (len(triples[0]), label_model.LABEL_INPUTS)])


def test_an_annotator_with_one_label_has_the_crowds_skill():
    """The skill of an annotator with one label equals the crowd's, whether others agree or not."""
    item, annotator = np.repeat(np.arange(6), 4), np.tile(np.arange(4), 6)
    label = item % 2
    for chosen in (0, 1):
        triples = (np.append(item, 0), np.append(annotator, 4), np.append(label, chosen))
        seen = label_inputs(triples, (6, 5, 2))
        assert seen.shape == (3, 25, label_model.LABEL_INPUTS)
        np.testing.assert_allclose(seen[:, -1, 7], 0, atol=1e-12)  # difference to the crowd's skill


def test_a_labels_own_skill_leaves_it_out():
    """Changing a label changes its annotator's skill for their other labels, but hardly for this label."""
    randomness = np.random.default_rng(0)
    N, R = 200, 20
    item, annotator = (
        np.repeat(np.arange(N), 5),
        np.concatenate([randomness.choice(R, 5, replace=False) for _ in range(N)]),
    )
    truth = randomness.integers(2, size=N)
    label = np.where(randomness.random(len(item)) < 0.8, truth[item], 1 - truth[item])
    changed = label.copy()
    changed[7] = 1 - label[7]
    before, after = (label_inputs((item, annotator, each), (N, R, 2))[0, :, 7] for each in (label, changed))
    same = (annotator == annotator[7]) & (np.arange(len(item)) != 7)
    moved = abs(after - before)
    assert moved[7] < 0.2 * moved[same].mean()


# ---- unlike the training crowds -------------------------------------------------------------------------------------


def complete(N, R, label):
    return np.repeat(np.arange(N), R), np.tile(np.arange(R), N), np.broadcast_to(label, (N, R)).ravel().astype(np.int64)


def crowds_elsewhere():
    randomness = np.random.default_rng(0)
    truth = randomness.integers(3, size=(40, 1))
    answers = np.where(randomness.random((40, 60)) < 0.6, truth, randomness.integers(3, size=(40, 60)))
    item = np.repeat(np.arange(50), 4)
    yield "60 labels an item", complete(40, 60, answers), (40, 60, 3)
    yield "1,000 classes", (item, np.tile(np.arange(8), 25), randomness.integers(1000, size=200)), (50, 8, 1000)
    yield "one annotator", complete(30, 1, randomness.integers(4, size=(30, 1))), (30, 1, 4)
    yield "one label an item", (np.arange(30), np.arange(30) % 7, randomness.integers(3, size=30)), (30, 7, 3)
    yield "one label", complete(1, 1, 0), (1, 1, 2)
    yield "all agree", complete(20, 6, truth[:20]), (20, 6, 3)
    yield "all say the same", complete(20, 6, 0), (20, 6, 3)
    yield "all disagree", complete(20, 5, np.arange(5)), (20, 5, 5)
    many = complete(1, 5000, randomness.integers(2, size=(1, 5000)))
    few = complete(10, 3, randomness.integers(2, size=(10, 3)))
    yield (
        "5,000 labels of an item",
        tuple(np.concatenate([a, b + n]) for a, b, n in zip(many, few, (1, 0, 0), strict=True)),
        (11, 5000, 2),
    )
    yield (
        "100,000 annotators",
        (np.arange(100_000) // 5, np.arange(100_000), randomness.integers(4, size=100_000)),
        (20_000, 100_000, 4),
    )


ELSEWHERE = {name: (triples, sizes) for name, triples, sizes in crowds_elsewhere()}


@pytest.mark.parametrize("named_only", [None, True], ids=["as by default", "named only"])
@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("network", [NETWORK, shipped_network()], ids=["any network", "shipped"])
def test_posteriors_are_finite_and_normalised_far_from_the_training_crowds(network, name, named_only):
    triples, sizes = ELSEWHERE[name]
    posterior = posterior_matrix(triples, sizes, network, named_only=named_only)
    assert np.isfinite(posterior).all()
    assert (posterior >= 0).all()
    np.testing.assert_allclose(posterior.sum(axis=1), 1, atol=1e-9)


def test_few_of_many_classes_are_as_good_as_all():
    """If all annotators are right, leaving out classes that no annotator chose changes no consensus."""
    truth = np.arange(40)[:, None] % 20
    triples = complete(40, 6, truth)
    all_of_them, named = (
        posterior_matrix(triples, (40, 6, 20), shipped_network(), named_only=n) for n in (False, True)
    )
    assert (all_of_them.argmax(1) == truth[:, 0]).all()
    assert (named.argmax(1) == truth[:, 0]).all()


def test_the_shipped_network_follows_reliable_people():
    """Two reliable annotators outvote three unreliable ones."""
    randomness = np.random.default_rng(1)
    truth = np.append(randomness.integers(2, size=60), 1)
    good = np.where(randomness.random((61, 6)) < 0.97, truth[:, None], 1 - truth[:, None])
    bad = randomness.integers(2, size=(61, 3))
    labels = np.concatenate([good, bad], axis=1)
    labels[60] = [1, 1, -1, -1, -1, -1, 0, 0, 0]
    item, annotator = np.nonzero(labels >= 0)
    posterior = posterior_matrix((item, annotator, labels[item, annotator]), (61, 9, 2), shipped_network())
    assert posterior[60, 1] > 0.6
    assert (posterior[:60].argmax(1) == truth[:60]).mean() > 0.95


# ---- side information -----------------------------------------------------------------------------------------------


@SOME
@given(SEEDS, st.booleans())
def test_known_items_are_held_fixed(seed, named_only):
    (item, annotator, label), (N, R, K) = crowd(seed)
    known = np.where(np.random.default_rng(seed).random(N) < 0.4, np.random.default_rng(seed).integers(K, size=N), -1)
    posterior = posterior_matrix((item, annotator, label), (N, R, K), known=known, named_only=named_only)
    fixed = np.flatnonzero(known >= 0)
    np.testing.assert_array_equal(posterior[fixed], np.eye(K)[known[fixed]])
    some = np.union1d(fixed, item)
    np.testing.assert_allclose(posterior[some].sum(axis=1), 1, atol=1e-9)


def test_known_items_decide_between_annotators():
    """Two annotators always disagree; the known items decide between them on the others."""
    triples = complete(40, 2, np.arange(2))
    known = np.where(np.arange(40) < 20, 1, -1)
    assert posterior_matrix(triples, (40, 2, 2), shipped_network())[30, 1] == pytest.approx(0.5, abs=1e-6)
    assert posterior_matrix(triples, (40, 2, 2), shipped_network(), known=known)[30, 1] > 0.7


@pytest.mark.parametrize("witness", ["known", "right"])
def test_side_information_without_content_changes_little(witness):
    triples, (N, R, K) = crowd(3)
    nothing = {
        "known": {"known": np.full(N, -1)},
        "right": {"right": np.zeros(R), "wrong": np.zeros(R)},
    }[witness]
    with_empty = posterior_matrix(triples, (N, R, K), shipped_network(), **nothing)
    np.testing.assert_allclose(with_empty, posterior_matrix(triples, (N, R, K), shipped_network()), atol=0.02)


def test_annotators_with_better_history_decide():
    """Two annotators always disagree; their history decides."""
    triples, sizes = complete(20, 2, np.arange(2)), (20, 2, 2)
    right, wrong = np.array([20.0, 95.0]), np.array([20.0, 5.0])
    posterior = posterior_matrix(triples, sizes, shipped_network(), right=right, wrong=wrong)
    assert posterior[:, 1].min() > 0.65


def test_ordered_labels_are_evidence_for_the_class_between():
    """Annotators err by one class; with ordered classes, labels 1 and 3 are evidence for 2."""
    randomness = np.random.default_rng(0)
    truth = np.append(randomness.integers(5, size=150), 2)
    off = randomness.choice([-1, 0, 1], p=[0.25, 0.5, 0.25], size=(151, 6))
    answers = (truth[:, None] + off).clip(0, 4)
    answers[150] = [1, 3, -1, -1, -1, -1]
    item, annotator = np.nonzero(answers >= 0)
    triples = item, annotator, answers[item, annotator]
    with_order, without = (
        posterior_matrix(triples, (151, 6, 5), shipped_network(), ordered=ordered)[150] for ordered in (True, False)
    )
    assert with_order[2] > without[2]
    assert with_order[2] > with_order[0] + with_order[4]


@SOME
@given(SEEDS)
def test_an_order_can_be_read_from_either_end(seed):
    triples, sizes = crowd(seed)
    item, annotator, label = triples
    given = {**side_information(seed, sizes), "known": None}
    ahead = posterior_matrix(triples, sizes, **given)
    back = posterior_matrix((item, annotator, sizes[2] - 1 - label), sizes, **given)
    np.testing.assert_allclose(ahead, back[:, ::-1], atol=1e-9)


# ---- the file -------------------------------------------------------------------------------------------------------


def test_a_network_is_restored_from_its_file(tmp_path):
    save_network(tmp_path / "n.safetensors", NETWORK, {"settings": {"seed": 7}})
    back = load_network(tmp_path / "n.safetensors")
    assert back.keys() == NETWORK.keys()
    for name, value in back.items():
        np.testing.assert_array_equal(value, NETWORK[name].astype(np.float32))
        assert value.dtype == np.float64
    card = read_card(tmp_path / "n.safetensors", "inference")
    assert (card["kind"], card["settings"]) == ("inference", {"seed": 7})
    assert {"crowdshot", "numpy", "python"} == card["made_with"].keys()


def test_the_shipped_network_is_small_and_documents_its_training():
    assert SHIPPED.stat().st_size < 1_000_000
    card = read_card(SHIPPED, "inference")
    assert card["settings"]["seed"] == 0
    assert card["learned_from"]["projects"] == []  # it was not trained on real crowds
    assert len(card["scores_left_out"]) == 23


def without(name):
    return {key: value for key, value in NETWORK.items() if key != name}


@pytest.mark.parametrize(
    ("arrays", "word", "found"),
    [
        ({}, "no tensor", "crowd.0.in.bias"),
        (without("item.1.out.bias"), "no tensor", "item.1.out.bias"),
        ({**NETWORK, "more": np.zeros(2)}, "unknown tensor", "more"),
        ({**NETWORK, "crowd.0.in.weight": np.zeros((2, 6))}, "shape", (2, 6)),
        ({**NETWORK, "crowd.0.in.bias": np.full(6, np.nan)}, "not finite", "crowd.0.in.bias"),
    ],
)
def test_files_with_other_tensors_are_refused(tmp_path, arrays, word, found):
    write_arrays(tmp_path / "n.safetensors", arrays, {"kind": "inference"})
    with pytest.raises(CrowdshotError, match=word) as error:
        load_network(tmp_path / "n.safetensors")
    assert error.value.where == str(tmp_path / "n.safetensors")
    assert error.value.found == found


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "n.safetensors"
    with pytest.raises(CrowdshotError, match=r"does not exist, expected an inference file\.$"):
        load_network(path)
    save_network(path, NETWORK, {})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        CrowdshotError, match=r"is truncated or damaged \(.*\), expected an inference saved by crowdshot\.$"
    ):
        load_network(path)
    path.write_text("item,label\n")
    with pytest.raises(CrowdshotError, match=r"is not a safetensors file"):
        load_network(path)
    write_arrays(path, NETWORK, {"kind": "encoder"})
    with pytest.raises(CrowdshotError, match=r"holds an encoder, expected an inference\.$"):
        load_network(path)


def test_no_torch_is_needed():
    code = "import sys; from crowdshot.model import label_model; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"crowdshot.model.label_model", "numpy"} <= set(done.stdout.split())
    assert not {"torch", "sklearn"} & set(done.stdout.split())
