"""Attention models by enumeration: every text, and what it is worth by definition.

    rows = {(): [...], (0,): [...], ...}     # log-probs after each text, ends included
    credits = Credits(naive_phrases.Phrases({"ab": 1.0}, "token", ...), names)
    totals(rows, eos, names, rule="closed", credits=credits)   # {text: nats}

Higher is better. Texts are tuples of tokens. A text of the longest length that the rows
have is one that is cut off there: it has no end.
"""

import math
from collections import defaultdict

import naive
import naive_phrases


class Credits:
    """Worth of phrases, and credit paid ahead, from their definition.

    `names` says what a token is called; phrases are spelt by names.
    """

    def __init__(self, phrases, names):
        self.phrases, self.names = phrases, names
        self.amounts = defaultdict(float)
        for phrase, weight in phrases.weights.items():
            spellings = naive_phrases.minimal(set(phrases.spellings[phrase]))
            for spelling in spellings:
                worth = phrases.worth(weight, max(map(len, spellings)))
                self.amounts[spelling] += worth
        self.cost = phrases.coster((), naive.Fillers())

    def said(self, text):
        """The names of a text's tokens; marks have none."""
        return tuple(self.names[t] for t in text if t in self.names)

    def boost(self, text):
        return -self.cost((), self.said(text))

    def done(self, text):
        """Nats of the phrases that the last token of a text ends."""
        names = self.said(text)
        return sum(
            amount
            for spelling, amount in self.amounts.items()
            if names[len(names) - len(spelling) :] == spelling
        )

    def paid(self, length):
        """Share of an amount paid for the first labels of a phrase, up to a factor."""
        options = self.phrases.options
        c0, beta = options.get("c0", 1.0), options.get("beta", 2.0)
        if options.get("uniform"):  # whatever c0 is, little for the first one
            c0, beta = 0.3, 3.0
        if not length:
            return 0.0
        return c0 + sum(c0 * beta + math.log(d) for d in range(2, length + 1))

    def paid_ahead(self, text):
        """phi: for the longest end of a text that begins a phrase."""
        names = self.said(text)
        for start in range(len(names) + 1):
            part = names[start:]
            scales = [
                amount / self.paid(len(spelling))
                for spelling, amount in self.amounts.items()
                if len(spelling) > len(part) and spelling[: len(part)] == part
            ]
            if scales:
                best = max(0, *scales, 0)
                return round(best * self.paid(len(part)) * 16384) / 16384
        return 0.0

    def gain(self, text, token):
        """Credit of a token behind a text."""
        if token not in self.names:
            return 0.0
        longer = (*text, token)
        return self.paid_ahead(longer) - self.paid_ahead(text) + self.done(longer)

    def loops(self, text):
        """Tell whether a phrase ends too often: twice in 16 tokens, or three times."""
        steps = []
        for i, token in enumerate(text):
            step = None
            if token in self.names and self.done(text[: i + 1]) > 0:
                step = self.begun(text[:i]), token
            steps.append(step)
            before = steps[:-1]
            if step and (step in before[-16:] or before.count(step) > 1):
                return True
        return False

    def begun(self, text):
        """The longest end of a text that a phrase continues."""
        names = self.said(text)
        parts = (names[start:] for start in range(len(names) + 1))
        return next(
            part
            for part in parts
            if not part
            or any(
                len(spelling) > len(part) and spelling[: len(part)] == part
                for spelling in self.amounts
            )
        )


def closing_at(rows, text, ends, credits, has_loops):
    """How many tokens of a text there are when its phrases close; all where never."""
    for length in range(len(text)):
        row = rows[text[:length]]
        if max(row[e] for e in ends) >= max(row) or (
            has_loops and credits.loops(text[:length])
        ):
            return length
    return len(text)


def kept_of(rows, text, ends, rule, credits, more):
    """How many tokens of a text its phrases see."""
    if rule != "closed":
        return len(text)
    return closing_at(rows, text, ends, credits, more.get("loops", True))


def totals(rows, ends, *, longest, rule="none", credits=None, costs=(), **more):
    """Every text's total in nats.

    ends: tokens that end one. longest: texts of this length are cut off, without an
    end. costs: pairs of a weight and a function (text, token or None) -> cost. more:
    `ctc`: a `naive_joint.Joint`, and `pre_beam` for a beam; `insertion`: nats a token
    costs; `loops`: whether phrases close in loops; `marks`: tokens without costs.
    """
    found = {}
    for text in texts_of(rows, longest, ends):
        whole = text[:-1] if text and text[-1] in ends else text
        total = log_prob_of(rows, text, whole, more, is_whole=True)
        total -= more.get("insertion", 0.0) * said_in(whole, more)
        for weight, cost in costs:
            steps = steps_of(whole, more)
            if len(whole) < len(text):
                steps.append((whole, None))
            total -= weight * sum(cost(*step) for step in steps)
        if credits is not None:
            kept = kept_of(rows, whole, ends, rule, credits, more)
            total += credits.boost(whole[:kept])
        if total > -math.inf:
            found[text] = total
    return found


def log_prob_of(rows, text, whole, more, *, is_whole):
    """Log-prob of a text by the model, and by CTC with its weight."""
    total = sum(rows[text[:i]][token] for i, token in enumerate(text))
    ctc = more.get("ctc")
    if ctc is None or total == -math.inf:
        return total
    of_ctc = ctc.whole(whole) if is_whole else ctc.prefix(whole)
    return (1 - ctc.weight) * total + ctc.weight * of_ctc


def said_in(text, more):
    """How many tokens of a text say something."""
    return sum(token not in more.get("marks", ()) for token in text)


def steps_of(text, more):
    marks = more.get("marks", ())
    return [(text[:i], t) for i, t in enumerate(text) if t not in marks]


def texts_of(rows, longest, ends):
    """All texts with their ends, and those that are cut off."""
    for text in rows:
        if len(text) < longest:
            yield from ((*text, end) for end in ends)
        if len(text) == longest:
            yield text


def live_total(rows, text, ends, *, rule="none", credits=None, costs=(), **more):
    """Total of a text before its end: credit paid ahead is in it."""
    total = log_prob_of(rows, text, text, more, is_whole=False)
    total -= more.get("insertion", 0.0) * said_in(text, more)
    for weight, cost in costs:
        total -= weight * sum(cost(*step) for step in steps_of(text, more))
    if credits is None:
        return total
    kept = kept_of(rows, text, ends, rule, credits, more)
    ahead = credits.paid_ahead(text) if kept == len(text) else 0.0
    return total + credits.boost(text[:kept]) + ahead


def beam(rows, ends, *, width, longest, stop="never", rank=None, cut=True, **more):
    """A plain beam: `width` texts, the best first, as {text: total}.

    Of the best `width` continuations those that end are finished, and the best `width`
    others remain. Ties: the lower parent, the lower token. stop: `"full"` with K
    finished, or `"never"`. cut: texts of the longest length are cut off; else their
    end is forced. rank: a function of a total and a count of tokens with the end.
    """
    final = totals(rows, ends, longest=longest, **more)
    rank = rank or (lambda total, count: total)
    live, finished = [()], {}
    for length in range(1, longest + 1):
        if length == longest and not cut:
            forced = [(*text, end) for text in live for end in ends]
            finished |= {text: final[text] for text in forced if text in final}
            break
        found = []
        for parent, text in enumerate(live):
            asked = asked_of(rows, text, ends, more)
            for token in range(len(rows[()])):
                longer = (*text, token)
                if asked is not None and token not in asked:
                    continue
                if token in ends or length == longest:  # cut off: all paid back
                    score = final.get(longer, -math.inf)
                else:
                    score = live_total(rows, longer, ends, **more)
                found.append((-score, parent, token, longer))
        found = sorted(one for one in found if one[0] < math.inf)
        best = [one[3] for one in found[:width]]
        finished |= {t: final[t] for t in best if t in final}
        finished = best_of(finished, width, rank)
        live = [one[3] for one in found if one[3][-1] not in ends][:width]
        if (stop == "full" and len(finished) == width) or not live:
            break
    return best_of(finished, width, rank)


def asked_of(rows, text, ends, more):
    """The tokens that CTC is asked for behind a text; None for all, without it.

    Ends and marks, and of the others the best `pre_beam` by all else.
    """
    if more.get("ctc") is None:
        return None
    silent = {*ends, *more.get("marks", ())}
    taken_off = more["ctc"].weight
    others = {name: one for name, one in more.items() if name != "ctc"}
    rule = others.pop("rule", "none")
    found = []
    for token in range(len(rows[()])):
        if token not in silent and rows[text][token] > -math.inf:
            longer = (*text, token)
            score = live_total(rows, longer, ends, rule=rule, **others)
            score -= taken_off * sum(rows[longer[:i]][t] for i, t in enumerate(longer))
            found.append((-score, token))
    return silent | {token for _, token in sorted(found)[: more["pre_beam"]]}


def best_of(finished, width, rank):
    kept = sorted(finished, key=lambda text: -rank(finished[text], len(text)))
    return {text: finished[text] for text in kept[:width]}
