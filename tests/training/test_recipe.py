"""Test recipes: invalid settings are refused, and only compatible recipes are trained together."""

import json

import pytest

from crowdshot.errors import CrowdshotError
from crowdshot.training.episodes import as_range
from crowdshot.training.recipe import SHARED, Recipe, check_stackable, sweep


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ways": (1, 4)}, "ways is 1:4, expected a range such as 3:7, from 2 upwards"),
        ({"shots": (5, 1)}, "shots is 5:1"),
        ({"annotators": (0, 3)}, "annotators is 0:3, expected a range such as 3:7, from 1"),
        ({"annotators": (2, 3), "labels_per_item": (2, 4)}, "labels_per_item is up to 4, expected at most 3"),
        ({"objective": "magic"}, "objective is 'magic', expected one of mixture, prototypical"),
        ({"prior": "magic"}, "prior is 'magic', expected one of paper, symmetric, diagonal, one-coin"),
        ({"augment": "magic"}, "augment is 'magic', expected one of none, photo"),
        ({"cool_down": 1.5}, "cool_down is 1.5, expected a share of the iterations, from 0 to 1"),
        ({"queries": 0}, "queries is 0"),
        ({"iterations": 0}, "iterations is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0, expected a positive number"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ],
)
def test_invalid_settings_are_refused(settings, sentence):
    with pytest.raises(CrowdshotError, match=sentence):
        Recipe(**settings)


def test_ranges_on_the_command_line():
    assert as_range("3:7", "shots") == (3, 7)
    assert as_range("4", "ways") == (4, 4)
    for text in ("", "a", "1:", "1:2:3", "1.5"):
        with pytest.raises(CrowdshotError, match=r"shots is '.*', expected a number or a range"):
            as_range(text, "shots")


def test_prototypical_networks_equal_one_step_of_the_mixture_without_priors():
    recipe = Recipe(objective="prototypical", steps=5, tau=1.0, b=1.0)
    assert (recipe.steps, recipe.tau) == (1, 0.0)
    assert recipe.b >= 1e6


def test_a_recipe_survives_json():
    recipe = Recipe(labels_per_item=(2, 3), steps=3)
    card = json.loads(json.dumps(recipe.to_card()))
    assert Recipe(**card) == recipe


def test_a_sweep_is_every_combination():
    recipes = sweep(Recipe(), steps=[1, 2, 3], seed=range(2))
    assert len(set(map(repr, recipes))) == 6
    assert {(r.steps, r.seed) for r in recipes} == {(j, s) for j in (1, 2, 3) for s in (0, 1)}
    check_stackable(recipes)


def test_settings_that_determine_shapes_must_be_shared():
    assert {"ways", "shots", "annotators", "queries", "episodes", "prior", "augment"} <= set(SHARED)
    assert not {"objective", "pseudo_annotation", "steps", "b", "learning_rate", "seed"} & set(SHARED)
    with pytest.raises(CrowdshotError, match=r"shots is \(1, 3\) in recipe 1, expected \(1, 5\) as in recipe 0"):
        check_stackable([Recipe(), Recipe(shots=(1, 3))])
