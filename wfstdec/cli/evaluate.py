"""Commands that use references: score, compare, tune."""

import logging
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import wfstdec
from wfstdec import compare as library
from wfstdec.batch.decoding import LatticeReading
from wfstdec.cli.decode import second_pass_of
from wfstdec.cli.flags import (
    DECODERS,
    FLAGS,
    GIVEN_LATTICES,
    INPUTS,
    PHRASES,
    Args,
    changed,
    command,
    flag_of,
    made_of,
    need,
    normalizer_of,
    open_vocabulary_of,
    refuse,
    values_of,
)
from wfstdec.compare.comparison import Decode, Outcome, Search, Setting
from wfstdec.compare.models import DecoderSearch
from wfstdec.compare.plotting import check_plot
from wfstdec.compare.quality import (
    SCALES,
    by_speaker,
    fewest_errors,
    lattice_errors,
    measure,
    oracle,
    read_lists,
)
from wfstdec.compare.speech import evenly_spaced
from wfstdec.errors import InputError, OptionError
from wfstdec.io.boost_files import BoostFile, read_boosts, read_phrases
from wfstdec.io.results import read_confidences, read_text
from wfstdec.lattice.file import LatticeFile, open_lattices
from wfstdec.metrics import Score, score_texts
from wfstdec.models import load_model
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import (
    AUTO,
    WORD_START,
    load_lexicon,
    load_tokens,
    separator_of,
)
from wfstdec.text.normalize import Pairing, check_words
from wfstdec.transcription.files import find_recordings

_NAMED_AT_MOST = 20
_SIDES = ("--ref", "--hyp")
_SPEECH = (
    "--logprobs --audio --utterances --frame-shift --ignore-case --normalize "
    "--characters --language"
)
_OF_AUDIO = {
    "--logprobs": {"default": None},
    "--frame-shift": changed(None, "seconds per frame (default: 0.02, or the model's)"),
    "--audio": {"help": "recordings instead of log-probs: files, folders, manifests"},
    "--model": {
        "help": "transducer: a file of TransducerNet.save, or a folder with "
        "encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt; the log-probs are the "
        "features of its encoder. With --audio any model of `wfstdec transcribe`"
    },
}
_MODELS = (
    "--graph --tokens --blank --lexicon --lm --separator --separator-optional "
    "--unk-cost --open-vocabulary --model --head --transducer-lm --attention-model "
    "--attention-lm"
)
_GRIDS = " ".join(map(flag_of, DECODERS))
_FIRST_PASS = (
    f"{_GRIDS} {_MODELS.replace('--model ', '')} --logprobs --frame-shift --boost "
    "--lm-scale-range --insertion-range --boost-range"
)
"""Flags of `tune` for the search that made lattices."""

_log = logging.getLogger("wfstdec.score")


@command(
    "--ignore-case --normalize --characters --worst --nbest-lists --lattices "
    "--confidences --reliability",
    required="--ref --hyp",
    changes={"--lattices": GIVEN_LATTICES},
    examples="\n  wfstdec score --ref refs.txt --hyp hyp.ctm --worst 2\n",
)
def score(args: Args) -> None:
    """Score hypotheses against references, like Kaldi's compute-wer.

    Utterances without a hypothesis count as deletions, and are named; without a common
    id, or a common word, that is an error. The interval of the WER is a bootstrap over
    utterances. N-best lists (--nbest-lists) and lattices are scored by the best text in
    them; confidences by normalised cross-entropy and area under the ROC curve.

    Words are compared exactly, or by the rules of --ignore-case or --normalize, in all
    files. With --characters, characters are compared.
    """
    need(args, "--reliability", "--confidences")
    if args.reliability:
        check_plot(args.reliability)
    normalizer = normalizer_of(args)
    references, hypotheses = read_text(args.ref), read_text(args.hyp)
    pairing = Pairing.of(references, hypotheses, _SIDES)
    pairing.check()
    if pairing.remedy:
        _log.warning("%s", pairing.remedy)
    # On raw texts: the error can then name the flag that makes them equal.
    both = [name for name in references if name in hypotheses]
    expected = chain.from_iterable(references[name] for name in both)
    decoded = chain.from_iterable(hypotheses[name] for name in both)
    check_words(expected, decoded, normalizer, _SIDES)
    references = normalizer.texts(references)
    name = "CER" if args.characters else "WER"
    scored = score_texts(references, normalizer.texts(hypotheses), name)
    print(report(scored))
    for kind, path, read, fewest in (
        ("lists", args.nbest_lists, read_lists, fewest_errors),
        ("lattices", args.lattices, open_lattices, lattice_errors),
    ):
        if path:
            least, words = oracle(references, read(path), fewest, normalizer)
            share = f"{100 * least / words:.2f} [ {least} / {words} ]"
            print(f"%{name} {share} of the best in {kind}")
    if args.confidences:
        sure = read_confidences(args.confidences)
        measured = library.score_confidences(references, sure, normalizer)
        print(measured)
        if args.reliability:
            library.plot_reliability({str(measured): measured.bins}, args.reliability)
    for utterance in scored.worst(args.worst):
        errors, rows = utterance.errors, in_columns(utterance.alignment())
        kind = "characters" if args.characters else "words"
        count = f"{errors.total} errors / {errors.reference_words} {kind}"
        print(f"{utterance.utterance}: {count}\n  ref {rows[0]}\n  hyp {rows[1]}")


def report(score: Score) -> str:
    """Return Kaldi's lines, and utterances on one side only."""
    lines = [score.wer_line, score.ser_line]
    count = f"{len(score.utterances)} utterances"
    if score.interval is not None:
        bootstrap = f"{score.interval} (bootstrap over {count})"
        lines.append(f"95 % interval of the {score.name}: {bootstrap}")
    lines.append(f"Scored {count}, {len(score.missing)} without a hypothesis")
    if score.missing:
        lines.append(f"counted as deletions: {_names(score.missing)}")
    if score.extra:
        lines.append(f"without a reference, left out: {_names(score.extra)}")
    return "\n".join(lines)


def in_columns(cells: Iterable[Sequence[str]]) -> list[str]:
    """Return rows of words in columns of minimal width."""
    wide = [[one.ljust(max(map(len, some))) for one in some] for some in cells]
    return [" ".join(row).rstrip() for row in zip(*wide, strict=True)]


def _names(utterances: Sequence[str]) -> str:
    named = " ".join(utterances[:_NAMED_AT_MOST])
    more = len(utterances) - _NAMED_AT_MOST
    return f"{named} and {more} more" if more > 0 else named


@command(
    f"{_SPEECH} {_MODELS} {_GRIDS} --lm-scale --word-insertion --boost --phrase-unit "
    "--phrase-boundary --sentencepiece-model --phrases --repeats --oracle --json "
    "--plot",
    required="--ref",
    changes={"--boost": {"nargs": "+"}, **_OF_AUDIO},
    common="--logprobs --ref --graph --tokens --lexicon --lm --wfst --trie --greedy "
    "--boost --oracle --json --plot",
    examples=r"""
  wfstdec compare --graph graph.npz --logprobs logprobs.npz --ref refs.txt \
      --wfst beam=8,13 --repeats 1
""",
)
def compare(args: Args) -> None:
    """Compare searches on your data: WER against speed, at several beams.

    --graph adds the WFST decoder, --tokens (and --lexicon, --lm) the trie decoder, all
    three also the WFST decoder, --greedy the greedy one, --model a transducer, and
    --attention-model an attention decoder. A grid is the product of its options;
    options joined by colons vary together. Widths (beam, max_active, beam_size, ...)
    are settings of a search; other options define separate searches, except for greedy
    decoding, which has no widths:

        --wfst beam=8,10,13 max_active=7000,none     six settings
        --trie beam:beam_size=6:16,8:32,10:128       three: beam 6 with size 16, ...
        --trie beam=8 beam_size=32,128 merge=max,sum
        --greedy lm_scale=0.2,0.4

    The language model is over words with a lexicon, else over tokens. Greedy decoding
    outputs bare tokens: with a lexicon, whose words must be spelled, it runs without
    the language model. Transducers and attention decoders have their own tokens and
    language models, and the time of their model is part of the speed.

    With --audio the recordings are encoded once by --model: a CTC model, for the
    searches of --graph, --tokens or --greedy; a transducer or an attention model, with
    its own search. This time is not part of the speed.

    With --boost all also run with each list, credited by words, or
    by tokens with --phrase-unit token or without words.

    The table has, for each point, the WER, precision, recall and F of the occurrences
    of --phrases, RTFx (seconds of audio per CPU second of one thread, the fastest of
    --repeats), search errors (utterances whose total cost is above that of the widest
    setting of the same search, relative 1e-3), utterances without a final state, and
    the growth of the process's memory; with --oracle also the oracle WER of n-best
    lists and of lattices, the limit of rescoring.
    """
    compare_with(args)


def compare_with(
    args: Args, others: Callable[..., Sequence[Search]] | None = None
) -> None:
    """Compare our searches with those of `others(models, scales)`."""
    if args.plot is not None:
        check_plot(args.plot)  # before hours of searches, not after them
    # File names without endings.
    lists: dict[str, BoostFile] = {}
    for path in args.boost or ():
        name = Path(path).name.split(".")[0]
        if name in lists:
            raise OptionError(f"two boost lists called {name!r}, expected other names")
        lists[name] = read_boosts(path)
    need(args, PHRASES, "--boost")
    phrases = sorted(set().union(*(one.favoured for one in lists.values())))
    if args.phrases:
        phrases = read_phrases(args.phrases)
    speech = _speech_of(args)  # may choose models
    searches = _searches_to_compare(args, _models_of(args), others)
    how: Any = {"boosts": lists, "phrases": phrases, "oracle": args.oracle}
    comparison = library.run(speech, searches, repeats=args.repeats, **how)
    if args.json is not None:
        comparison.save(args.json)
    if args.plot is not None:
        library.plot(comparison, args.plot)
    print(library.table(comparison))


def _makes_graph(models: library.Models) -> bool:
    try:
        return models.loaded_graph.item.num_states > 0
    except InputError as error:
        _log.info("without the WFST decoder: %s", error)
        return False


def _check_letters(models: library.Models) -> None:
    """Raise if the lexicon has phones: greedy tokens would not be words."""
    tokens = load_tokens(models.any_tokens(), models.blank)
    between = separator_of(models.separator, tokens, lexicon=models.lexicon)
    lexicon = load_lexicon(models.lexicon or "", tokens, between)
    same = 0
    for word, pronunciation in zip(lexicon.words, lexicon.pronunciations, strict=True):
        text = "".join(tokens.names[token] for token in pronunciation)
        same += word.lower() == text.strip(WORD_START).lower()
    if 2 * same < len(lexicon):
        raise OptionError(
            f"--greedy with a lexicon of phones: {same} of {len(lexicon)} entries "
            "spell their word, expected tokens that spell; leave --greedy out"
        )


def _searches_to_compare(
    args: Args,
    models: library.Models,
    others: Callable[..., Sequence[Search]] | None,
) -> list[Search]:
    scales = {"lm_scale": args.lm_scale, "word_insertion": args.word_insertion}
    needed = ("graph", "tokens", "greedy", "model", "attention_model")
    searches: list[Search] = []
    for name, flag in zip(DECODERS, needed, strict=True):
        grid = getattr(args, name)
        given = getattr(args, flag) is not None
        if given and name == "greedy" and args.lexicon is not None:
            _check_letters(models)
        if given or (name == "wfst" and args.lexicon and _makes_graph(models)):
            # Other searches have no word insertion.
            own = scales if name in ("wfst", "trie") else {"lm_scale": args.lm_scale}
            searches += _searches_of(models, name, grid or (), **own)
        elif grid is not None and name in ("transducer", "attention"):
            raise OptionError(f"--{name} without {flag_of(flag)}, expected both")
    if not searches:
        raise OptionError(
            "neither --graph nor --tokens, expected one (the WFST, the trie) or both"
        )
    # Last: others use the same models.
    if others is not None and (args.tokens or args.graph):
        searches += others(models, **scales)
    return searches


def _speech_of(args: Args) -> library.Speech:
    how: Any = {"limit": args.utterances, "normalizer": normalizer_of(args)}
    if args.audio is None:
        need(args, "--language", "--audio")
        if args.frame_shift is None:
            args.frame_shift = FLAGS["--frame-shift"]["default"]
        if args.logprobs is None:
            raise OptionError(
                "neither --logprobs nor --audio, expected what is decoded"
            )
        frame_shift = {"frame_shift_s": args.frame_shift}
        return library.read_speech(args.logprobs, args.ref, **frame_shift, **how)
    if args.logprobs is not None or args.model is None:
        what = "--logprobs" if args.logprobs else "no --model"
        raise OptionError(f"--audio and {what}, expected --audio and --model")
    recordings = {one.name: one.audio for one in find_recordings(args.audio)}
    model = load_model(
        *(args.model, args.tokens, args.blank),
        **values_of(args, "head language"),
        frame_shift_s=args.frame_shift,
    )
    family = model.spec.family
    for name in ("transducer", "attention"):
        if getattr(args, name) is not None and name != family:
            raise OptionError(
                f"--{name} with a model of the family {family!r}, expected {name!r}"
            )
    speech = library.encode_speech(model, recordings, args.ref, **how)
    args.frame_shift, args.model, args.head = speech.frame_shift_s, None, None
    if family == "ctc":
        args.tokens = args.tokens or (None if args.graph else model.spec.tokens)
    else:
        kind = {"transducer": "model", "attention": "attention_model"}
        setattr(args, kind[family], model)
    return speech


def _models_of(args: Args) -> library.Models:
    return made_of(
        *(library.Models, args),
        open_vocabulary=open_vocabulary_of(args),
        frame_shift_s=args.frame_shift,
        # `--transducer` and `--attention` are grids of options.
        transducer=args.model,
        attention=args.attention_model,
    )


def _searches_of(
    models: library.Models, name: str, texts: Iterable[str], **changed: Any
) -> list[DecoderSearch]:
    options = DECODERS[name](**changed)
    defaults = {one.name: one.default for one in fields(options)}
    # For options whose values are words, `none` is one: `end_rule=closed,none`.
    words = [name for name, value in defaults.items() if isinstance(value, str)]
    grid = library.parse_grid(texts, defaults, words)
    return getattr(models, f"{name}_searches")(options, grid)


@command(
    f"{_SPEECH} {_MODELS} --model-weight --model-texts --lattices --test-lattices "
    "--test-ref --reliability --boost --lm-scale-range --insertion-range --boost-range "
    "--max-trials --plot",
    required="--ref",
    at_most_one=f"{_GRIDS} --posterior-scale",
    changes={
        **{flag: {"default": None, "nargs": "*"} for flag in _GRIDS.split()},
        "--posterior-scale": changed(
            None, "tune the scale of posteriors of --lattices; first scales", nargs="*"
        ),
        **_OF_AUDIO,
        "--lattices": GIVEN_LATTICES,
        "--plot": {"help": "plot of WER against options: .png, .svg (matplotlib)"},
    },
    common="--logprobs --ref --graph --tokens --lexicon --lm --wfst --trie --boost "
    "--max-trials --plot",
    examples=r"""
  wfstdec tune --graph graph.npz --wfst beam=8 --logprobs logprobs.npz \
      --ref refs.txt --max-trials 5
""",
)
def tune(args: Args) -> None:
    """Find the LM scale and the word insertion with the fewest errors on a dev set.

    With --boost also the scale of these boosts. The default setting is tried first,
    then a grid over both ranges, then ever smaller steps around the best; ties go to
    the smaller insertion. Without a lexicon, the insertion of tokens is tuned; for the
    greedy decoder, the blank penalty (above 0: more tokens). Tokens without a language
    model have no LM scale. Tune and test on different data.

    Prints the best setting with the 95 % interval of its WER, its gain over the default
    (bootstrap over utterances, with the same draws), and the command line that decodes
    with it.

    With --lattices, --model and --audio the weight of the model in `wfstdec rescore` is
    tuned, from 0 to 2.

    With --posterior-scale, the scale of confidences on lattices is tuned for the best
    normalised cross-entropy, on every second speaker (the part of an id before the
    first '-'), and tested on the others; or on all, and tested on --test-lattices.

        wfstdec tune --graph graph.npz --wfst beam=8 --logprobs dev.npz --ref dev.txt
        wfstdec tune --tokens ... --lexicon ... --lm ... --trie beam_size=64 ...
        wfstdec tune --tokens ... --lm bpe_lm --greedy ...
        wfstdec tune --model model.npz --transducer-lm pieces.arpa --transducer ...
        wfstdec tune --attention-model model.npz --attention-lm pieces.arpa \
            --attention ...
        wfstdec tune --audio dev/ --model parakeet --transducer-lm pieces.arpa \
            --transducer --ref dev.txt
        wfstdec tune --lattices dev.lat --model whisper --audio dev/ --ref dev.txt
        wfstdec tune --posterior-scale --lattices dev.lat --ref dev.txt
    """
    if args.posterior_scale is not None:
        _tune_scale(args)
        return
    need(args, "--test-lattices --test-ref --reliability", "--posterior-scale")
    if args.plot is not None:
        check_plot(args.plot)
    if args.lattices is not None:
        _tune_second_pass(args)
        return
    need(args, "--model-weight --model-texts", "--lattices")
    tuned = [name for name in DECODERS if getattr(args, name) is not None]
    if not tuned and args.graph is None:
        flags = ", ".join(_GRIDS.split())
        raise OptionError(f"no --graph and none of {flags}, expected one to tune")
    [name] = tuned or ["wfst"]
    if name == "greedy" and args.lexicon is not None:
        raise OptionError("--greedy with --lexicon, expected tokens alone")
    of_model = values_of(args, "model tokens blank head language frame_shift")
    speech = _speech_of(args)  # changes these
    searches = _searches_of(_models_of(args), name, getattr(args, name) or ())
    # A grid has several settings, which tuning explores.
    if len(searches) != 1 or len(searches[0].settings) != 1:
        raise OptionError("several settings to tune, expected one value each")
    [search] = searches
    [setting], tunable, boosts = search.settings, search.tunable, None
    lists = read_boosts(args.boost) if args.boost else None
    if lists is not None:
        boosts = search.compile_boosts(list(map(lists.of, speech.logprobs)))
        tunable = (*tunable, "boost_scale")
    options = replace(search.base, **setting)
    # Defaults of the scales, or of insertions.
    ranges = {"lm_scale": args.lm_scale_range, "boost_scale": args.boost_range}
    tuning = library.tune(
        lambda values: search.prepare({**setting, **values}),
        speech,
        {name: tuple(ranges.get(name, args.insertion_range)) for name in tunable},
        boosts=boosts,
        max_trials=args.max_trials,
        default={name: getattr(options, name) for name in tunable},
        say=(lambda _: None) if args.quiet else partial(print, flush=True),
    )
    _report(args, tuning, speech)
    more = {} if lists is None else _boost_flags(args.boost, lists, search)
    best = replace(options, **tuning.best.setting)
    print(f"to decode with it:\n{_decode_command(args, name, best, more, of_model)}")


def _report(args: Args, tuning: Any, speech: library.Speech) -> None:
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    if tuning.interval is not None:
        count = len(speech.logprobs)
        print(f"95 % interval: {tuning.interval} (bootstrap over {count} utterances)")
    print(f"without tuning: {tuning.default}")
    if tuning.gain is not None:
        print(f"gain on this data: {tuning.gain}")
    for border in tuning.borders:
        print(f"{border}: look beyond it")
    if not tuning.complete:
        print(
            f"cut short after {args.max_trials} trials: nearby settings may be better"
        )
    if args.plot is not None:
        library.plot_tuning(tuning, args.plot)


def _tune_second_pass(args: Args) -> None:
    """Tune the weight of a second pass; the model scores each text once."""
    if args.model is None or args.audio is None:
        raise OptionError(
            "--lattices without --posterior-scale, or --model and --audio"
        )
    refuse(args, _FIRST_PASS, "--lattices")
    normalizer = normalizer_of(args)
    lattices, references = _paired(args.lattices, args.ref)
    reading = second_pass_of(args)
    from wfstdec.attention.rescoring import reweighed

    names = [name for name in references if name in lattices]
    names = evenly_spaced(names, args.utterances)
    texts = LatticeReading(nbest=args.model_texts)
    known = [reading.rescored(name, texts(name, lattices[name])) for name in names]
    words = normalizer.texts({name: references[name] for name in names})
    nothing = np.zeros((0, 1), np.float32)
    speech = library.Speech(dict.fromkeys(names, nothing), words, normalizer=normalizer)

    def prepare(setting: Setting) -> Decode:
        lists = reweighed(known, weight=setting["model_weight"])
        best = [one[0].hypothesis.text if one else "" for one in lists]
        return lambda *_: list(map(Outcome, best))

    tuning = library.tune(
        prepare,
        speech,
        {"model_weight": (0.0, 2.0)},
        max_trials=args.max_trials,
        default={"model_weight": args.model_weight},
        say=(lambda _: None) if args.quiet else partial(print, flush=True),
    )
    _report(args, tuning, speech)
    flags = {"lattices": args.lattices, "model": args.model, "audio": args.audio}
    flags |= {"language": args.language} if args.language else {}
    flags |= {"model_texts": args.model_texts, **tuning.best.setting}
    words_of = [word for name, x in flags.items() for word in _flag_words(name, x)]
    print(f"to rescore with it:\n{shlex.join(['wfstdec', 'rescore', *words_of])}")


def _boost_flags(path: str, lists: BoostFile, search: DecoderSearch) -> dict[str, Any]:
    """Return the flags of `decode` for a list of `--boost`; none if unsupported."""
    if search.compile is None:
        return {"boost": path}
    # A decoder without words takes it as phrases: no JSON lines, and numbers for all or
    # none.
    numbers = list(lists.common.values())
    is_mixed = None in numbers and any(one is not None for one in numbers)
    are_entries = any(isinstance(one, wfstdec.BoostEntry) for one in numbers)
    is_json = next(filter(str.strip, read_lines(path)), "").lstrip().startswith("{")
    if lists.own or is_mixed or are_entries or is_json:
        print(f"--boost {path} is left out below: it is no list for --phrases")
        return {}
    totals = {} if None in numbers else {"phrase_totals": True}
    return {"phrases": path, **totals}


def _decode_command(
    args: Args,
    kind: str,
    options: Any,
    more: Mapping[str, Any],
    of_model: dict[str, Any],
) -> str:
    """Return the command line that decodes with these options, quoted for a shell."""
    # `of_model`: given flags of the model of --audio.
    given = {name: getattr(args, name, None) for name in INPUTS[kind].split()}
    if given.get("graph") is not None:
        given = {"graph": args.graph}
    if kind in ("transducer", "attention"):
        given["lm"] = getattr(args, f"{kind}_lm")
    if kind == "attention":
        given["model"] = args.attention_model
    if args.audio is not None:
        given |= of_model
        source = given.pop("model")
    if "separator" in given:
        named = {AUTO: None, None: "none"}
        given["separator"] = named.get(args.separator, args.separator)
    flags: dict[str, Any] = {} if kind == "wfst" else {"decoder": kind}
    flags |= {name: x for name, x in given.items() if x is not None and x is not False}
    # Only values other than defaults, so that the command remains readable.
    defaults = {one.name: one.default for one in fields(options)}
    flags |= {n: x for n, x in vars(options).items() if x != defaults[n]}
    command = ["wfstdec", "decode"]
    if args.audio is not None:
        command = ["wfstdec", "transcribe", str(source), *map(str, args.audio)]
    else:
        if args.frame_shift != FLAGS["--frame-shift"]["default"]:
            flags["frame_shift"] = args.frame_shift
        flags["logprobs"] = args.logprobs
    flags |= more
    words = [word for name, value in flags.items() for word in _flag_words(name, value)]
    return shlex.join([*command, *words])


def _flag_words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag_of(name) if value else f"--no-{flag_of(name)[2:]}"]
    if isinstance(value, list | tuple):
        return [flag_of(name), *map(str, value)]
    text = "none" if value is None else str(value)
    return [f"{flag_of(name)}={text}"] if text[0] == "-" else [flag_of(name), text]


def _tune_scale(args: Args) -> None:
    if args.lattices is None:
        raise OptionError("--posterior-scale without --lattices, expected both")
    if (args.test_lattices is None) != (args.test_ref is None):
        raise OptionError("--test-lattices and --test-ref, expected both or none")
    if args.reliability:
        check_plot(args.reliability)
    normalizer = normalizer_of(args)
    lattices, references = _paired(args.lattices, args.ref)
    if args.test_lattices is not None:
        tests = _paired(args.test_lattices, args.test_ref)
        given = library.judge_all(lattices, references, normalizer=normalizer)
        others = library.judge_all(*tests, normalizer=normalizer)
    else:
        given, others = (
            library.judge_all(lattices, references, some, normalizer)
            for some in by_speaker(lattices)
        )
    show = None if args.quiet else partial(print, flush=True)
    tuning = library.tune_posterior_scale(given, args.posterior_scale or SCALES, show)
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    series = {}
    for scale in dict.fromkeys((tuning.best.scale, 1.0)):
        trial = measure(others, scale)
        print(f"on others, {trial}")
        series[f"scale {scale:g}, {trial.quality}"] = trial.quality.bins
    if args.reliability:
        library.plot_reliability(series, args.reliability)


def _paired(path: str, ref: str) -> tuple[LatticeFile, dict[str, tuple[str, ...]]]:
    lattices, references = open_lattices(path), read_text(ref)
    Pairing.of(lattices, references, (Path(path).name, Path(ref).name)).check()
    return lattices, references
