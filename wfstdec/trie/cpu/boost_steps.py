"""What boosts make of a step of the trie search, and what they pay at most.

The order of sums is that of `BoostAccount`: a bonus, less the cost of the phrases.
"""

from __future__ import annotations

from numpy import float32, int32, uint32

from wfstdec.boost.kernels import join, most_paid, owed_of, pay, rest_of, state_of
from wfstdec.boost.tables import is_hot, step
from wfstdec.boost.words import find_bonus
from wfstdec.jit import inlined

_NOTHING_OWED = uint32(0)
_NO_COST = float32(0)


@inlined
def pay_step(search, boost, credit, state):
    """The cost of a step, and the next boost state.

    Args:
        search: `Search`.
        boost: The boost state before it.
        credit: What the step is credited.
        state: The state of the phrases after it.
    """
    owed, size = owed_of(boost), search.params.instalment
    if owed == _NOTHING_OWED and credit <= size:
        return float32(_NO_COST - credit), int32(state)
    paid, owed = pay(owed, credit, size)
    return float32(_NO_COST - paid), int32(join(owed, state))


@inlined
def step_token(search, boost, token, bonus):
    """The cost of a token that begins where no word ends, and the next boost state.

    The bonus is what else is credited.
    """
    credit, state = credit_token(search.phrases, boost, token, _NO_COST)
    return pay_step(search, boost, float32(credit + bonus), state)


@inlined
def credit_token(phrases, boost, token, bonus):
    """The credit of a token and a bonus, and the next state of the phrases."""
    state = state_of(boost)
    if phrases.of_tokens:
        cost, state = step(phrases, state, uint32(token))
        bonus = float32(bonus - cost)
    return bonus, state


@inlined
def credit_word(search, boost, word):
    """The credit of a word, and the next state of the phrases."""
    words, phrases, state = search.words, search.phrases, state_of(boost)
    credit = _NO_COST
    if search.params.has_words:
        credit = find_bonus(words.keys, words.bonuses, uint32(word))
    if phrases.of_words:
        cost, state = step(phrases, state, uint32(word))
        credit = float32(credit - cost)
    return credit, state


@inlined
def most_inside(search, entry, bonus):
    """No less than a step pays that ends no word; the bonus is what else it credits."""
    phrases, boost = search.phrases, entry.boost
    credit = bonus
    if phrases.of_tokens:
        credit = float32(credit + phrases.rows[state_of(boost)].credit)
    return most_paid(owed_of(boost), credit, search.params.instalment)


@inlined
def most_at_end(search, entry, bonus):
    """No less than a step pays that ends a word of the entry's node.

    The bonus is what else it credits.
    """
    phrases, boost, words = search.phrases, uint32(entry.boost), search.words
    credit = float32(words.top_bonus + phrases.rows[state_of(boost)].credit)
    if not phrases.of_tokens:
        if boost == phrases.quiet and _is_cold(search, entry.node):
            credit = _NO_COST
    credit = float32(credit + bonus)
    return most_paid(owed_of(boost), credit, search.params.instalment)


@inlined
def _is_cold(search, node):
    """Whether no word that ends at a node is boosted, or begins a phrase."""
    if search.beside:  # any word may be spelled where none of the lexicon ends
        if node >= search.first_added:
            return False
        splits = search.space.trie.node_pron_splits
        if splits[node] == splits[node + 1]:
            return False
    return not is_hot(search.words, node)


@inlined
def boosts_at_end(search, boost):
    """What boosts cost at the end: what is owed is paid, half-said phrases charged."""
    refund = search.phrases.final_cost[state_of(boost)]
    return float32(refund - rest_of(boost, search.params.instalment))
