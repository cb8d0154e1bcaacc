// Draws the charts of the page from the data embedded in it. Fetches nothing: the loader refuses every address.
"use strict";
(function () {
  const charts = JSON.parse(document.getElementById("torchledger-charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const nothing = {
    load: () => Promise.reject(new Error("this page fetches nothing")),
    sanitize: () => Promise.reject(new Error("this page fetches nothing")),
    http: () => Promise.reject(new Error("this page fetches nothing")),
    file: () => Promise.reject(new Error("this page fetches nothing")),
  };

  function config() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const ink = color("--ink"), quiet = color("--quiet"), rule = color("--rule");
    const axis = { labelColor: quiet, titleColor: quiet, gridColor: rule, domainColor: rule, tickColor: rule };
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      title: { color: ink, anchor: "start", fontSize: 14 },
      axis: axis,
      legend: { labelColor: quiet, titleColor: quiet, orient: "top" },
      text: { color: quiet },
      rule: { color: quiet },
      view: { stroke: null },
      mark: { color: color("--fill") },
      range: { category: dark.matches
        ? ["#6aa6e6", "#f0a45d", "#74c68e", "#e07b91", "#b79be8"]
        : ["#2f6fb3", "#d9772b", "#2f8f4e", "#b8405e", "#6f54b5"] },
    };
  }

  function draw() {
    for (const [id, chart] of Object.entries(charts)) {
      vegaEmbed("#" + id, chart, {
        actions: { export: true, source: false, compiled: false, editor: false },
        ast: true, config: config(), loader: nothing, renderer: "svg", tooltip: { theme: dark.matches ? "dark" : "light" },
      }).catch((error) => { document.getElementById(id).textContent = String(error); });
    }
  }

  dark.addEventListener("change", draw);
  draw();
})();
