"""The phrases of questions by which filters are recognised, as patterns over classes of words.

A class is a letter: "films under 2 hours" is ``gcn``, and ``gVV`` when the filter is read.

=========  ===========================================  =========  ===============================
``n``      a number, with its unit                      ``y d``    a year; another time
``N v``    a name; another value                        ``F g``    a field; a document ("film")
``c t``    compares ("over"); compares times            ``s``      compares and stands behind
``b -``    opens a range; is inside it                  ``m j``    比, and what follows it
``p w``    preposition of times ("in"); of values       ``! & |``  negates; joins
``e k``    "is"; "'s", "that", 的                       ``z``      ends what 除了 begins
``a T``    asks or praises ("show", "best"); "the"      ``q``      asks about a subject ("why")
``r o``    made at some time; with some subject         ``x V``    another word; one of a filter
=========  ===========================================  =========  ===============================
"""

import re
from typing import Final

# A time or a number; or a list of values, and what belongs to it behind.
PHRASE: Final = re.compile(
    r"""
    (?P<time> (?P<not>(?:!g?)?) [wr]? [aT]{0,2} (?P<field> F [ep]{0,2} [aT]{0,2} )?
      (?: [bp]?T?[nyd] - T?[nyd]                            # from 2010 to 2015
        | b T?[nyd] & T?[nyd]                               # between 2 and 3 hours
        | m T?[nyd] j                                       # 比3小时短
        | c T?n [,&]{1,2} c T?n (?(field)(?!p?F))           # over 5 and under 8
        | p? [ct] (?:T?F)? T?[nyd]                          # before 2010, under the price of 5
        | p? T? (?:[nyd]|nF) s                              # 2010年以后
        | n F (?=[gv])                                      # 4 star hotels
        | (?P<equal> (?:p(?:T?F)?)? T?[nyd] (?:[&|,]p?[yd])* )  # in 1991 or in 2005
      )
      (?: (?<=n)p?F | (?<=cy)F | (?<=ns)F | (?<=[yds])F(?=[k,]|$) )?  # the field behind
    )
    | (?P<values> (?P<no>!)? [aT]{0,2}
        (?P<role> (?: [wp]? [aT]{0,2} F[ep]? !? | [wp] )? ) [aT]{0,3}  # genre is, directed by
        (?P<v>[vN])
        (?(no) (?: (?:,(?P=v))* ,? [&|] [aT]? (?P=v) )?     # not A, B or C
             | (?: ,? [&|]? [aT]? (?P=v) )* )               # A, B C
      )
      (?P<behind> (?: k{0,2} g | !? [ke]? F )? z? )         # ... films, ... genre
    """,
    re.VERBOSE,
)
# A filter behind a phrase: one of times or numbers, of names, or a negated one.
_FILTER: Final = (
    r"F?(?:[cb]|tT?[nyd])|p[ct]|r?p[aT]?[yd]|w[aT]?[vNF]|p[aT]?v?F|wa?c|[,&|k]?!p?[aT]?[vNFydw]"
    r"|F[ep]?[nvN]"
)
FILTER: Final = re.compile(_FILTER)
# An unknown word after values that names documents: "red wines from Italy".
HEAD: Final = re.compile(
    rf"(a*(?:[vN][,&|]*)+x)(?:(?P<one>[,k]?(?:wa?[vNF]|!|F?[cb]))|(?:p[aT]?|k)[vN]|{_FILTER})"
)
# What stands before and after a kind of document that is one common word, such as "drama".
BEFORE_KIND: Final = re.compile(r"(?:^|[gV,])[ark&|]*$|o[^,]{1,8}k$")
AFTER_KIND: Final = re.compile(rf"[ak]?$|k?[,zor]|k[vNg]|[aT]?[yd]|[nyd]s|{_FILTER}")
# After its plural, "dramas".
AFTER_KINDS: Final = re.compile(r"$|[^xeqk]")
# After one behind other words, "korean thriller", and after its plural.
AFTER_DESCRIBED_KIND: Final = re.compile(r"t|wa?c|F?c|,?!|wF?[vN]|F[ep]?[vN]")
AFTER_DESCRIBED_KINDS: Final = re.compile(rf"[or]|{_FILTER}")
# A time before documents, "2014 comedies", and one behind them, "films made in 2014".
BEFORE_DOCUMENT: Final = re.compile(
    r"a{0,2}(?:[vN]|g(?!x))|(?:[rF]?k|o[^,]{0,8}?k)[^,]{0,8}?[gvN]|F[ep]?c[nyd]s?k?[gv]"
)
AFTER_DOCUMENT: Final = re.compile(r"[gV]r?[a&,]*$")
# What stands before values with their field, unlike "explain the western genre".
BEFORE_NAMED: Final = re.compile("(?:^|[gVN,wp!])[aTrk&|]*$")
# What stands behind a phrase that is no part of a longer one.
END: Final = re.compile(r"T?(?:$|[,&|!zkgwcbtorN]|F(?!$)|p[aT]?[ydvNct])")
# A word that a search looks for, beside filters.
SUBJECT: Final = re.compile(r"[^VagTkor&|,pw]")
