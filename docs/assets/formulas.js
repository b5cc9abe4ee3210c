// Render the formulas with the KaTeX that is shipped with the site.
for (const formula of document.querySelectorAll(".arithmatex")) {
  const text = formula.textContent.trim();
  katex.render(text.slice(2, -2), formula, { displayMode: text.startsWith("\\["), throwOnError: false });
}
