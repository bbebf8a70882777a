"""Paragraphs to sentences, by the rules of their language."""

import re
from collections.abc import Callable, Sequence

from bert_tf.base.errors import InputError

# Paragraphs are split by `sentencex` (Wikimedia's): rules for abbreviations, numbers,
# quotations and lists. It takes any code, and English rules for one that it does not
# know; so these are the codes in its table of languages and fallbacks, which it does
# not show. The first of each line has rules of its own, the others go by them.
RULES = {
    codes.split()[0]: tuple(codes.split())
    for codes in (
        "am",
        "ar acm aeb apc arq ary arz",
        "bg",
        "bn bpy",
        "ca oc",
        "da jut kl",
        "de als bar dsb frr gsw hrx hsb ksh lb nds pdc pdt pfl rm sli stq vmf",
        "el pnt",
        "en abs ace aln ami az azb ban bbc bcc bdr be bew bgn bh bho bjn bo bqi bs btm"
        " bug cdo ckb cpx crh dtp dty dz eo et fa gag gan glk gom gor hak he hif hr hsn"
        " hu iba id ii io iu jv ka kge khw kiu km knc ko kr ks ku lg liv ljp lki lo lrc"
        " lt ltg luz lv lzh lzz mad min mk mnc mo ms mui mzn nan nb ne nia nn no nrf"
        " nyn nyo pwn rmy ro rsk rup ruq sdh sgs sh sq sr su sv sw szy tay tg th tr trv"
        " ttj ug ur vep vro wuu xmf yi yue za zh",
        "es an arn ast ay ext gn guc lad nah qu qug",
        "fi fit krl olo smn vot",
        "fr atj avk bci bm dua fon frc frp gcf gcr hke ht kab kbp ln lua mg pcd ses sg"
        " shy ty wa wls wo",
        "gu",
        "hi anp awa mag mai sa",
        "hy hyw",
        "it aae co egl eml fur lij lld lmo nap pms rgn scn sdc sro vec",
        "ja",
        "kk kaa",
        "kn tcy",
        "ml",
        "mr",
        "my blk kjp ksw mnw",
        "nl li srn vls",
        "pa",
        "pl csb szl",
        "pt gl kea mwl tet vmw",
        "ru ab alt av ba bxr ce cv gld inh kjh koi krc kum kv lbe lez mdf mhr mrj myv"
        " os rut sah sjd sty tt tyv udm xal",
        "sk cs",
        "ta",
        "te",
        "uk rue",
    )
}
LANGUAGES = tuple(sorted(code for codes in RULES.values() for code in codes))
LANGUAGE_HELP = (
    f" With rules of their own: {', '.join(RULES)}. With those of a related language:"
    f" {', '.join(code for code in LANGUAGES if code not in {*RULES, *RULES['en']})}."
    f" With the English ones: {', '.join(RULES['en'][1:])}. Case and region do not"
    " matter: de-AT is de."
)

# Ends of sentences that sentencex does not know: of Tibetan and of Khmer.
_ENDS = r"\u0f0d-\u0f11\u17d4\u17d5"
_TO_OTHER_END = re.compile(rf"[^{_ENDS}]*[{_ENDS}][\s{_ENDS}]*|[^{_ENDS}]+")
# At "B\u00a0.", sentencex (1.0.32) cuts the space's bytes in two and panics.
_WIDE_SPACE_BEFORE_PERIOD = re.compile(r"[^\S\x00-\x7f](?=\.)")

# At each mark, sentencex goes back to the last space: quadratic time where there are
# none. Such a text is shown to it through a window; of the sentences found, those that
# end in its first half are taken, and it grows if none does. Only a quotation, or a
# list, longer than the other half would look different in the whole text.
_WINDOW = 1 << 13
_LONG_WORD = 1 << 10


def language_code(language: str) -> str:
    """A language's code without case and region: de of DE, de-AT or de_AT."""
    code = re.split("[-_]", language.strip().lower())[0]
    if code not in LANGUAGES:
        near = [code[:2]] if code[:2] in LANGUAGES else RULES
        raise InputError(
            f"`language={language}` must be a language's code, such as"
            f" {', '.join(near)}; --help lists all. The rules of en do for many others."
        )
    return code


def sentence_splitter(language: str) -> Callable[[str], Sequence[str]]:
    """A function from a paragraph to its sentences."""
    if not language:
        return _as_one
    import sentencex

    language = language_code(language)
    segment = sentencex.segment

    def split(paragraph: str) -> Sequence[str]:
        if not paragraph.isascii():
            paragraph = _WIDE_SPACE_BEFORE_PERIOD.sub(" ", paragraph)
        start, size = 0, len(paragraph)
        if size > _WINDOW and max(map(len, paragraph.split())) > _LONG_WORD:
            size = _WINDOW
        found: list[str] = []
        while len(paragraph) - start > size:
            taken = 0
            for sentence in segment(language, paragraph[start : start + size]):
                if taken + len(sentence) > size // 2:
                    break
                found.append(sentence)
                taken += len(sentence)
            start += taken
            size = _WINDOW if taken else 2 * size
        found += segment(language, paragraph[start:])
        if not paragraph.isascii():
            found = [
                part for sentence in found for part in _TO_OTHER_END.findall(sentence)
            ]
        stripped = [sentence.strip() for sentence in found]
        return [sentence for sentence in stripped if sentence]

    return split


def _as_one(paragraph: str) -> Sequence[str]:
    return (paragraph,) if paragraph else ()
