"""Words for text prompts: short, common, one token each in most vocabularies."""

_TEXT = """
time year people way day man thing woman life child world school state family student
group country problem hand part place case week company system program question work
government number night point home water room mother area money story fact month lot
right study book eye job word business issue side kind head house service friend
father power hour game line end member law car city name team minute idea body back
parent face others level office door health person art war history party result change
morning reason research girl guy moment air teacher force order food light market test
code file data value list type text string class return true false import from else
with open read write print error self none index key node path
"""

WORDS: tuple[str, ...] = tuple(_TEXT.split())

#: For small vocabularies, which have few whole words.
LETTERS: tuple[str, ...] = tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
