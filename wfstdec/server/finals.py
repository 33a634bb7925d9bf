"""Finals: the hypotheses of an utterance that is over, in all ways they are asked for.

    finals = Finals(model, decoder, confidence=True, nbest=3)
    sessions = finals.sessions()
    hypotheses = finals.of_session(sessions, session)     # one pass: closes it
    hypotheses = finals.of_piece(piece)                   # two: encoded whole, decoded

Best first, the best one with confidences where they are asked for.
"""

from __future__ import annotations

from typing import Any

from wfstdec.batch.decoding import search_all
from wfstdec.batch.lattices import LatticeReading
from wfstdec.models.encoder import Encoder
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.sessions import SessionId, Sessions
from wfstdec.transcription.pieces import Piece


class Finals:
    """Finds the hypotheses of utterances.

    Args:
        model: Encodes them.
        decoder: Decodes them.
        confidence: Whether the words of the best get confidences.
        nbest: How many hypotheses are wanted, at most.

    Attributes:
        decoder: With options that give so many.
        are_quick: Whether `of_session` is so quick that nobody minds waiting for it.

    Raises:
        OptionError: The decoder has no lattices, or no lists, and they are needed.
        BackendError: It has none of sessions.
    """

    def __init__(
        self, model: Encoder, decoder: Decoder[Any, Any], confidence: bool, nbest: int
    ) -> None:
        self._model = model
        self._reading = LatticeReading(nbest=nbest, confidence=True)
        self._from_lattice = confidence
        self._from_list = not confidence and nbest > 1
        if self._from_list and decoder.options.nbest != nbest:
            decoder = decoder.with_options(nbest=nbest)
        self.decoder = decoder
        self._records = confidence or (self._from_list and decoder.nbest_of_lattices)
        self.are_quick = not self._records
        if self._from_list:
            self.decoder.decode_nbest([])  # raises where there are no lists
        self.sessions()

    def sessions(self) -> Sessions:
        """Make sessions that record what finals need."""
        return self.decoder.sessions(lattices=self._records)

    def of_session(self, sessions: Sessions, session: SessionId) -> list[Hypothesis]:
        """Close a session; its hypotheses, best first."""
        if self._from_lattice:
            return self._reading(str(session), sessions.close_lattice(session))
        if self._from_list:
            return sessions.close_nbest(session)
        return [sessions.close(session)]

    def of_piece(self, piece: Piece) -> list[Hypothesis]:
        """Encode and decode a piece whole; its hypotheses, best first.

        Raises:
            InputError: It cannot be encoded or decoded.
        """
        rows = self._model.encode([piece.waveform])
        how = self._from_list, self._from_lattice
        [found] = search_all(self.decoder, rows, [piece.boosts], *how)
        return self._reading("", found) if self._from_lattice else found
