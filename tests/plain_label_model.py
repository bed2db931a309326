"""The label model in plain loops, from the formulas in the docstring of `crowdshot.model.label_model`.

It shares no code with the package, only the tensors of a network. Labels are (item, annotator, label) triples; every
item has all classes.
"""

import math

# Outputs of the network ``crowd``, in order.
CONSTANTS = ("power", "skill", "matrix", "sizes", "prior", "lift", "shared", "floor", "near")


def clipped(x, low, high):
    return min(max(x, low), high)


def logit(p, edge=0.01):
    p = clipped(p, edge, 1 - edge)
    return math.log(p / (1 - p))


def sigma(x):
    return 1 / (1 + math.exp(-x))


def log_count(n):
    return math.log(clipped(n, 1, 200)) / 3


def softmax(scores):
    top = max(scores)
    weights = [math.exp(x - top) for x in scores]
    return [w / sum(weights) for w in weights]


def centred(scores):
    return [x - sum(scores) / len(scores) for x in scores]


def network_output(network, name, inputs):
    """Apply the two layers of the network ``name`` to a list of inputs."""
    weight_in, bias_in, weight_out, bias_out = (
        network[f"{name}.{part}"].tolist() for part in ("in.weight", "in.bias", "out.weight", "out.bias")
    )
    assert len(inputs) == len(weight_in)
    hidden = [
        math.tanh(bias + sum(x * row[j] for x, row in zip(inputs, weight_in, strict=True)))
        for j, bias in enumerate(bias_in)
    ]
    return [
        bias + sum(h * row[o] for h, row in zip(hidden, weight_out, strict=True)) for o, bias in enumerate(bias_out)
    ]


class PlainLabelModel:
    """One crowd: labels, sizes, and side information (``known`` (N,), ``right`` and ``wrong`` (R,), ``ordered``)."""

    def __init__(self, labels, N, R, K, network, known=None, right=None, wrong=None, ordered=False):
        self.labels, self.N, self.R, self.K, self.network = labels, N, R, K, network
        self.known = [-1] * N if known is None else known
        self.right = [0.0] * R if right is None else right
        self.wrong = [0.0] * R if wrong is None else wrong
        self.ordered = ordered and K > 2
        self.n_item = [sum(n == item for item, _, _ in labels) for n in range(N)]
        self.n_annotator = [sum(r == annotator for _, annotator, _ in labels) for r in range(R)]
        self.votes = [[sum((n, k) == (i, y) for i, _, y in labels) for k in range(K)] for n in range(N)]
        self.before_rounds()

    def before_rounds(self):
        K, L = self.K, len(self.labels)
        self.frequency = [(sum(v[k] for v in self.votes) + 1) / (L + K) for k in range(K)]
        chance = sum(f**2 for f in self.frequency)
        self.share, self.paired = [], []
        for n, _, y in self.labels:
            self.share.append((self.votes[n][y] - 1) / max(self.n_item[n] - 1, 1))
            self.paired.append(1.0 if self.n_item[n] > 1 else 0.0)
        paired = sum(self.paired)
        self.agreement = (sum(s * o for s, o in zip(self.share, self.paired, strict=True)) + 2 * (1 + chance)) / (
            paired + 4
        )
        self.kappa = (self.agreement - chance) / max(1 - chance, 0.02)
        squares = sum(o * (s - self.agreement) ** 2 for s, o in zip(self.share, self.paired, strict=True))
        self.uneven = squares / max(paired, 1)
        self.evenness = -sum(f * math.log(f) for f in self.frequency) / math.log(K)
        self.vote = [
            [(self.votes[n][k] + self.frequency[k]) / (self.n_item[n] + 1) for k in range(K)] for n in range(self.N)
        ]
        self.excess = [s - self.agreement for s in self.share]
        self.peer, self.liking = [], []
        for place, (_, r, y) in enumerate(self.labels):
            others = [i for i, (_, annotator, _) in enumerate(self.labels) if annotator == r and i != place]
            self.peer.append(
                sum(self.paired[i] * self.excess[i] for i in others) / (sum(self.paired[i] for i in others) + 8)
            )
            same = sum((annotator, label) == (r, y) for _, annotator, label in self.labels)
            usual = self.frequency[y]
            self.liking.append(math.log((same - 1 + 2 * usual) / (self.n_annotator[r] + 1)) - math.log(usual))

    def held(self, posterior):
        return [
            row if self.known[n] < 0 else [float(k == self.known[n]) for k in range(self.K)]
            for n, row in enumerate(posterior)
        ]

    def scores(self):
        """Return the scores (N, K) after each round and, last, averaged with the vote."""
        rounds = sum(name.startswith("crowd.") and name.endswith("in.bias") for name in self.network)
        out = []
        for step in range(rounds):
            q = self.vote if not out else [softmax(row) for row in out[-1]]
            out.append(self.round(step, self.held(q)))
        last = [
            centred([2 / 3 * s + 1 / 3 * math.log(w) for s, w in zip(row, votes, strict=True)])
            for row, votes in zip(out[-1], self.vote, strict=True)
        ]
        return [*out, last]

    def posteriors(self):
        return self.held([softmax(row) for row in self.scores()[-1]])

    def count(self, q):
        """Set the counts of a round, from posteriors q."""
        K, R = self.K, self.R
        self.cells = [[[0.0] * K for _ in range(K)] for _ in range(R)]  # [annotator][true][observed]
        self.hits = [0.0] * R
        for n, r, y in self.labels:
            self.hits[r] += q[n][y]
            for k in range(K):
                self.cells[r][k][y] += q[n][k]
        self.shared = [[sum(self.cells[r][k][y] for r in range(R)) for y in range(K)] for k in range(K)]
        self.class_hits = [self.shared[k][k] for k in range(K)]
        self.class_labels = [sum(self.shared[k]) for k in range(K)]
        self.class_sizes = [sum(q[n][k] for n in range(self.N) if self.n_item[n]) for k in range(K)]
        self.accuracy = (sum(self.hits) + 1) / (len(self.labels) + 2)

    def crowd_inputs(self):
        L, items = len(self.labels), max(sum(n > 0 for n in self.n_item), 1)
        annotators = max(sum(n > 0 for n in self.n_annotator), 1)
        variance = sum(
            n * (h / max(n, 1) - self.accuracy) ** 2 for h, n in zip(self.hits, self.n_annotator, strict=True)
        )
        return [
            math.log(self.K),
            math.log(L / items),
            math.log(L / annotators) / 2,
            math.log(items) / 3,
            self.kappa * 2,
            logit(self.accuracy),
            math.sqrt(variance / L + 1e-4) * 3,
            self.evenness,
            self.uneven * 4,
            (self.accuracy - self.agreement) * 2,
            1.0 if self.ordered else 0.0,
        ]

    def set_constants(self, step):
        self.inputs = self.crowd_inputs()
        c = dict(zip(CONSTANTS, network_output(self.network, f"crowd.{step}", self.inputs), strict=True))
        for name in ("power", "prior", "lift"):
            c[name] = sigma(c[name])
        for name in ("skill", "matrix", "sizes", "shared"):
            c[name] = math.exp(clipped(c[name], -4, 7))
        c["floor"] = math.exp(clipped(c["floor"], -4, 2)) / (50 * self.K)
        c["near"] = math.exp(clipped(c["near"], -3, 2)) if self.ordered else 0.0
        self.c = c

    def rate_label(self, step, place, q):
        """Return skill, weight and ability of a label."""
        n, r, y = self.labels[place]
        earlier = self.right[r] + self.wrong[r]
        skill = (self.hits[r] - q[n][y] + self.right[r] + self.c["skill"] * self.accuracy) / (
            self.n_annotator[r] - 1 + earlier + self.c["skill"]
        )
        inputs = [
            logit(skill),
            log_count(self.n_annotator[r] + earlier),
            log_count(self.n_item[n]),
            self.peer[place] * 4,
            clipped(self.liking[place], -3, 3),
            self.excess[place],
            q[n][y],
            logit(skill) - logit(self.accuracy),
        ]
        x = network_output(self.network, f"label.{step}", inputs + self.inputs)
        return skill, 2 * sigma(x[0]), logit(skill) + x[1]

    def log_likelihood(self, place, k, ability, q):
        """Return log(alpha_k + floor) of a label for class k, with the label left out of the counts."""
        (n, r, y), K, c = self.labels[place], self.K, self.c
        ease = (self.class_hits[k] + 4 * self.accuracy) / (self.class_labels[k] + 4)
        p = sigma(ability + 2 * c["lift"] * (logit(ease, 0.02) - logit(self.accuracy, 0.02)))
        if y == k:
            base = p
        else:
            u = math.exp(-c["near"] * abs(y - k)) / sum(math.exp(-c["near"] * abs(j - k)) for j in range(K) if j != k)
            errors = max(self.class_labels[k] - self.class_hits[k], 0)
            base = (1 - p) * (self.shared[k][y] + c["shared"] * u) / (errors + c["shared"])
        cell = max(self.cells[r][k][y] - q[n][k], 0) + c["matrix"] * base
        row = max(sum(self.cells[r][k]) - q[n][k], 0) + c["matrix"]
        return math.log(cell / row + c["floor"])

    def round(self, step, q):
        """Return the tempered scores (N, K) of a round that starts from posteriors q."""
        K, c = self.K, None
        self.count(q)
        self.set_constants(step)
        c = self.c
        messages, skills = [[0.0] * K for _ in range(self.N)], [0.0] * self.N
        for place, (n, _, _) in enumerate(self.labels):
            skill, weight, ability = self.rate_label(step, place, q)
            skills[n] += skill / self.n_item[n]
            for k in range(K):
                messages[n][k] += weight * self.log_likelihood(place, k, ability, q)
        total = sum(self.class_sizes) + c["sizes"]
        sizes = [(n_k + c["sizes"] / K) / total for n_k in self.class_sizes]
        scores = [
            centred(
                [
                    max(self.n_item[n], 1) ** (c["power"] - 1) * messages[n][k] + 2 * c["prior"] * math.log(sizes[k])
                    for k in range(K)
                ]
            )
            for n in range(self.N)
        ]
        posteriors = [softmax(row) for row in scores]
        gold = [n for n in range(self.N) if self.known[n] >= 0]
        gold_excess = sum(posteriors[n][self.known[n]] - sum(p**2 for p in posteriors[n]) for n in gold)
        gold_input = 4 * gold_excess / (len(gold) + 5)
        return [self.temper(step, n, scores[n], posteriors[n], skills[n], gold_input) for n in range(self.N)]

    def temper(self, step, n, score, posterior, skill, gold_input):
        votes, vote, N_n = self.votes[n], self.vote[n], self.n_item[n]
        concentration = sum((v / max(N_n, 1)) ** 2 for v in votes)
        inputs = [
            log_count(N_n),
            -sum(w * math.log(w) for w in vote),
            concentration,
            skill,
            concentration - skill,
            logit(sum(p**2 for p in posterior), 1e-4) / 4,
            math.sqrt(clipped(N_n, 1, 100)) * (concentration - skill) / 3,
            sum(p * w for p, w in zip(posterior, vote, strict=True)),
            -sum(p * math.log(p + 1e-9) for p in posterior),
            1 / max(N_n, 1),
            gold_input,
        ]
        x = network_output(self.network, f"item.{step}", inputs + self.inputs)
        factor, vote_weight = math.exp(clipped(x[0], -3, 1.5)), sigma(x[1] - 3)
        return [factor * s + vote_weight * math.log(w) for s, w in zip(score, vote, strict=True)]
