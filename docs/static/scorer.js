/* Search: pages that explain come first, then the reference, then why things are as they are, and
   what has changed. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 1,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 25,
  partialTitle: 12,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) =>
    score - (/^(decisions\/|changes$)/.test(page) ? 60 : /^api\/|-configs$/.test(page) ? 40 : 0),
};
