"""Test the contract of every compared method in the registry."""

from __future__ import annotations

import pytest
import torch

from crowdshot.encoders.networks import MLP, Conv4
from crowdshot.errors import CrowdshotError
from crowdshot.methods import CrowdEpisodes, Method
from crowdshot_paper.registry import BUILT_IN, METHODS

FEWER = {"iterations": 20, "trees": 10}  # settings that save time
WIDTH = 6


def small(method, **more):
    wanted = {**FEWER, **more}
    return {name: wanted[name] for name in method.default if name in wanted}


def encoder():
    """Return an encoder that is the identity, with trainable weights."""
    module = MLP(WIDTH, (), WIDTH)
    with torch.no_grad():
        module.layers[0].weight.copy_(torch.eye(WIDTH))
        module.layers[0].bias.zero_()
    return module


def problem(B=2, K=4, shots=2, R=4, noise=0.3, missing=0.2, spread=2.0, queries=2, seed=0):
    """Return episodes of separate classes, whose annotators err with probability ``noise``, and the query classes."""
    g = torch.Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(B, max(K, WIDTH), WIDTH, generator=g)).Q[:, :K]
    if K > WIDTH:
        directions = torch.nn.functional.normalize(torch.randn(B, K, WIDTH, generator=g), dim=-1)
    centres = 3 * spread * directions

    def items(n):
        truth = torch.arange(K * n) % K
        return centres[:, truth] + 0.1 * torch.randn(B, K * n, WIDTH, generator=g), truth

    support, truth = items(shots)
    query, query_truth = items(queries)
    labels = truth[None, :, None].expand(B, -1, R)
    labels = torch.where(
        torch.rand(labels.shape, generator=g) < noise, torch.randint(K, labels.shape, generator=g), labels
    )
    labels = torch.where(torch.rand(labels.shape, generator=g) < missing, -1, labels)
    return CrowdEpisodes(support, labels, query, K), query_truth


@pytest.fixture(params=BUILT_IN, ids=str)
def method(request):
    return METHODS[request.param]


@pytest.mark.parametrize("n_classes", [2, 4, 10])
def test_probabilities_of_every_query(method, n_classes):
    episodes, _ = problem(K=n_classes)
    found = method.predict(episodes, encoder(), **small(method))
    assert found.shape == (2, 2 * n_classes, n_classes)
    assert found.dtype == torch.float32
    assert bool((found >= 0).all())
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))


def test_missing_labels_are_accepted(method):
    """Leave an annotator, an item, a class and a whole episode without labels."""
    episodes, _ = problem(B=3)
    labels = episodes.labels.clone()
    labels[:, :, 1] = -1
    labels[:, 3] = -1
    labels[labels == 2] = 0
    labels[2] = -1
    found = method.predict(episodes._replace(labels=labels), encoder(), **small(method))
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))


def test_an_annotator_without_labels_changes_nothing(method):
    episodes, _ = problem()
    silent = torch.full_like(episodes.labels[..., :1], -1)
    more = episodes._replace(labels=torch.cat([episodes.labels, silent], -1))
    settings = small(method)
    torch.testing.assert_close(
        method.predict(more, encoder(), **settings),
        method.predict(episodes, encoder(), **settings),
        atol=1e-4,
        rtol=1e-4,
    )


def test_batch_equals_loop(method):
    episodes, _ = problem(B=3)
    settings = small(method)
    together = method.predict(episodes, encoder(), **settings)
    alone = [method.predict(episodes.part(slice(i, i + 1)), encoder(), **settings) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)


def test_a_query_is_classified_equally_alone(method):
    """This holds for MAML too, because this encoder has no batch normalisation."""
    episodes, _ = problem()
    settings = small(method)
    alone = method.predict(episodes._replace(query=episodes.query[:, 1:2]), encoder(), **settings)
    together = method.predict(episodes, encoder(), **settings)[:, 1:2]
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-4)


def test_results_depend_on_the_seed_only(method):
    episodes, _ = problem()
    first, again = (method.predict(episodes, encoder(), seed=3, **small(method)) for _ in range(2))
    assert torch.equal(first, again)
    if method.name in ("CL", "LF", "CNAL", "RFMV"):
        assert not torch.equal(first, method.predict(episodes, encoder(), seed=4, **small(method)))
    module = encoder()
    state = torch.random.get_rng_state()
    method.predict(episodes, module, **small(method))
    assert torch.equal(torch.random.get_rng_state(), state)  # the global generator is unchanged


def test_the_encoder_is_not_modified(method):
    module = encoder().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    method.predict(problem()[0], module, **small(method))
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_order_of_annotators_does_not_matter(method):
    episodes, _ = problem()
    settings = small(method)
    other = episodes._replace(labels=episodes.labels[..., [2, 0, 3, 1]])
    torch.testing.assert_close(
        method.predict(other, encoder(), **settings),
        method.predict(episodes, encoder(), **settings),
        atol=1e-4,
        rtol=1e-4,
    )


@pytest.mark.slow
def test_clean_labels_of_separate_classes_are_learned(method):
    episodes, truth = problem(shots=4, noise=0.0, missing=0.0)
    found = method.predict(episodes, encoder(), **small(method, iterations=300, trees=50))
    assert bool((found.argmax(-1) == truth).all())


def test_candidates_give_the_same_together_and_alone(method):
    episodes, _ = problem(B=1)
    few = [small(method, iterations=n, trees=n) for n in (5, 15)]
    few = [{**method.candidates[0], **one} for one in few]
    together = method.predict_candidates(episodes, encoder(), few)
    for candidate, found in zip(few, together, strict=True):
        torch.testing.assert_close(found, method.predict(episodes, encoder(), **candidate), atol=1e-5, rtol=1e-5)


def test_images(method):
    """Use the paper's network, whose batch normalisation has running statistics."""
    g = torch.Generator().manual_seed(0)
    support, query = torch.randn(2, 6, 1, 16, 16, generator=g), torch.randn(2, 3, 1, 16, 16, generator=g)
    labels = torch.randint(-1, 3, (2, 6, 2), generator=g)
    torch.manual_seed(0)
    found = method.predict(CrowdEpisodes(support, labels, query, 3), Conv4(1, width=8), **small(method, iterations=3))
    assert found.shape == (2, 3, 3)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3))


def test_documentation_is_complete(method):
    assert method.summary
    assert method.summary[0] != " "
    for word in ("Authors:", "Title:", "Year:", "Link: https://", "Our choices where the paper is silent"):
        assert word in method.documentation
    assert all(set(candidate) <= set(method.default) for candidate in method.candidates)
    assert len({repr(sorted(candidate.items())) for candidate in method.candidates}) == len(method.candidates)


# ---- the registry ---------------------------------------------------------------------------------------------------


def test_every_system_of_the_paper_is_there():
    alone = {"LRMV", "LRDS", "RFMV", "RFDS", "CL", "CNAL", "LF"}
    meta = {"PrMV", "PrDS", "PrSV", "MaMV", "MaDS", "MCL", "MCNAL", "MLF", "LNL", "Ours", "w/o PA", "labeling-search"}
    with_simulated = {f"{name} w/ PA" for name in ("PrMV", "PrDS", "MaMV", "MaDS", "MCL", "MCNAL")}
    systems = {name: METHODS[name] for name in alone | meta | with_simulated}  # there may be others
    assert {name for name, method in systems.items() if method.needs is None} == alone
    simulated = {name for name, method in systems.items() if method.needs and method.needs.pseudo_annotation}
    assert simulated == {"Ours", "LNL", *with_simulated}
    counts = {"Ours": 18, "LRMV": 5, "LRDS": 30, "RFMV": 4, "PrDS": 6, "MaMV": 3, "MaDS": 18, "CL": 3, "w/o PA": 6}
    assert {name: len(METHODS[name].candidates) for name in counts} == counts


def test_bad_input_is_refused():
    episodes, _ = problem()
    with pytest.raises(CrowdshotError, match="encoder is None, expected an encoder meta-trained with clean labels"):
        METHODS["PrMV"].predict(episodes)
    with pytest.raises(CrowdshotError, match="settings has 'depth', expected some of trees"):
        METHODS["RFMV"].predict(episodes, depth=3)
    with pytest.raises(CrowdshotError, match="labels is"):
        METHODS["LRMV"].predict(episodes._replace(labels=episodes.labels[:, :3]))
    with pytest.raises(CrowdshotError, match="query has shape"):
        METHODS["LRMV"].predict(episodes._replace(query=episodes.query[..., :2]))
    with pytest.raises(CrowdshotError, match=r"support is torch\.int64"):
        METHODS["LRMV"].predict(episodes._replace(support=episodes.support.long()))
    with pytest.raises(CrowdshotError, match="n_classes is 1"):
        METHODS["LRMV"].predict(episodes._replace(n_classes=1))


EVEN = torch.full((2, 8, 4), 0.25)  # of `problem()`: two episodes, eight queries, four classes


@pytest.mark.parametrize(
    ("given", "strange"),
    [
        (EVEN, "a Tensor"),
        ([EVEN, EVEN], "a list of 2"),
        ([EVEN.numpy()], "a list with a ndarray"),
        ([EVEN[..., :3]], "torch.float32 of shape (2, 8, 3)"),
        ([EVEN.long()], "torch.int64 of shape (2, 8, 4)"),
        ([EVEN * torch.nan], "NaN"),
        ([EVEN * 2], "numbers of 0.5 or more that sum to between 2 and 2"),
        ([EVEN + torch.tensor([-0.5, 0.5, 0, 0])], "numbers of -0.25 or more that sum to between 1 and 1"),
    ],
)
def test_bad_output_is_refused(given, strange):
    """A method of another package may return anything."""
    method = Method("Odd one", "", lambda *_: given, ({},), {})
    with pytest.raises(CrowdshotError) as error:
        method.predict(problem()[0])
    assert error.value.message == f"The method 'Odd one' returned {strange}"
    assert (error.value.argument, error.value.found) == ("method", "Odd one")
    assert "(B, Q, K) = (2, 8, 4)" in error.value.expected
    even = Method("Even", "", lambda *_: [EVEN.double()], ({},), {})
    assert even.predict(problem()[0]).sum().item() == pytest.approx(16)


def divide(*_):
    return 1 / 0


def test_a_failing_method_of_another_package_is_named_with_its_line():
    method = Method("Divide", "", divide, ({},), {})
    with pytest.raises(CrowdshotError, match=r"'Divide' failed at test_conformance\.py, line \d+") as error:
        method.predict(problem()[0])
    assert error.value.found == "ZeroDivisionError"
    assert isinstance(error.value.__cause__, ZeroDivisionError)
