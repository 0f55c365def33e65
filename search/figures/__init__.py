"""What every page is made of: escaped HTML, the style, scales, grids and symbols as SVG, and pages without a script."""
