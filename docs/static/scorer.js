/* Search: pages that explain come before names of the reference that have a word in common. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 1,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 25,
  partialTitle: 12,
  term: 5,
  partialTerm: 2,
};
