"""Parts of all pages: escaped HTML, style, scales, grids and symbols as SVG, and pages without a script."""
