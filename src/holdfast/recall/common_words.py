"""Words that shape a question rather than say what it is about.

In a small scope they pass for rare: nobody's memories contain "what" or "does". So a query is asked without them,
unless it consists of nothing else. They count in records like any other word. A word that means something in another
of these languages ("war", "son", "mine") stays in: a word too many costs little, the one that was meant costs the
answer.
"""

from __future__ import annotations

from typing import Final

_ENGLISH: Final = """
a about after again all also am an and any anyone anything are around as at be because been before being both but by
can could did do does doing done during each either else ever every everyone everything few for from further had has
have having he her here hers him his how i if in into is it its just kind let many may me might mine more most much
must my neither no nor not now of off on once one ones only or other our ours out over own please same shall she
should so some someone something somewhere sort such than that the their theirs them then there these they this those
through to too under until up us very was we were what when where whether which while who whom whose why will with
would you your yours come feel give go goes going good got know like look need say take tell thing think want way went
"""
_GERMAN: Final = """
aber alle als am auf aus bei bin bis da damit dann das dass dein deine dem den denn der des dich dir doch du durch ein
eine einem einen einer eines er es euch euer für gibt habe haben hast hatte ich ihm ihn ihr ihre im ist ja jede jeder
kann kein keine können mein meine mich mir mit muss nach nicht noch nur ob oder ohne sehr sein seine sich sie sind so
über um und uns unser unter vom von vor wann warum was weil welche welchem welchen welcher welches wem wen wenn wer
werden wie wieder will wir wird wo woher wohin wurde zu zum zur
"""
_FRENCH: Final = """
ai alors au aussi aux avec avez avoir ce cela ces cet cette ceux combien comme comment dans de des donc du elle elles
en est est-ce et eu faire fait il ils je la le les leur leurs lui mais me mes moi mon ne nos notre nous on ou où par
parce pas plus pourquoi quand que quel quelle quelles quels qui quoi sa sans se ses si sont sur ta te tes toi ton tu
un une vos votre vous y était été être
"""
_SPANISH: Final = """
al algo así como con cuál cuáles cuándo cuánto cuánta cuántos cuántas cuando de del desde donde dónde durante el él
ella ellas ellos en entre era eran es esa ese eso esta está están estar estas este esto estos fue ha han hasta hay la
las le les lo los más me mi mis mucho muy nada ni nos nosotros o para pero por porque qué que quien quién se ser si sí
sin sobre son su sus también te tengo tiene tu tus un una uno unos unas y ya yo
"""
_ITALIAN_PORTUGUESE_DUTCH: Final = """
anche che chi ci cosa cui da dai dal dalla degli dei del della delle di dov'è e è gli ha hanno ho i il io lei loro lui
ma mia mio nei nel nella non per perché più quale quali quando quanto questa questo qui si sono su sua suo tra tuo un'
à ao aos até com como das do dos ela ele em essa esse está eu foi isso mais mas meu minha na nas não no nos o onde os
ou para pela pelo por porque qual quais quem se sem ser seu também tem um uma você aan al ben bij dan dat de deze die
dit doen door een en er haar had heb hebben heeft het hij hoe hun ik is je jij kan maar mijn naar niet nog om onze ook
op te tot uit van veel voor waar waarom wanneer waren wat we welk welke wie wij ze zich zij zijn zou
"""
_RUSSIAN: Final = """
а без был была было были быть в вам вас весь во вот все всё всех вы где да для до его ее её если есть еще ещё же за
здесь и из или им их к как какая какие какой какое когда кого кому кто ли меня мне мной мой моя мы на над нам нас не
него нее неё ней нет ни них но о об он она они оно от по под почему при с сам себя со так также там тебе тебя то
только тот ты у уже что чтобы чья эта эти это этот я
"""

#: Each is a word, a name or an abbreviation to somebody who asks in another of these languages ("AI", "Ben", "May",
#: "recycle bin"), or would be taken for one once its ending is cut off ("same" for "Sam", "done" for "Don").
_MEANT: Final = """
ai ben bin com come dan die dir done door era eu fine hay hun man may mia mine mit par pas same sin sole son ton war
"""

COMMON: Final = frozenset(
    word
    for text in (_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN_PORTUGUESE_DUTCH, _RUSSIAN)
    for word in text.split()
    if word not in _MEANT.split()
)
