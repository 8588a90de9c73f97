// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

interface IBooks {
    function available(address account) external view returns (uint256);
    function staked(address account) external view returns (uint256);
    function claimed(address account) external view returns (uint256);
    function totalAvailable() external view returns (uint256);
    function totalHeld() external view returns (uint256);
    function totalPending() external view returns (uint256);
    function totalStaked() external view returns (uint256);
    function slashPool() external view returns (uint256);
    function creditPool() external view returns (uint256);
    function claimedTotal() external view returns (uint256);
    function totalLiabilities() external view returns (uint256);
    function token() external view returns (IBalances);
}

interface IBalances {
    function balanceOf(address account) external view returns (uint256);
}

/// @title All books of an escrow in one call, so that a test can compare them after each step.
contract Lens {
    /// @notice Per account: available, staked, claimed, tokens held; then the escrow's totals and its own tokens.
    function read(
        IBooks escrow,
        address[] calldata accounts
    ) external view returns (uint256[4][] memory rows, uint256[9] memory totals) {
        IBalances token = escrow.token();
        rows = new uint256[4][](accounts.length);
        for (uint256 i = 0; i < accounts.length; ++i) {
            address account = accounts[i];
            rows[i] = [
                escrow.available(account),
                escrow.staked(account),
                escrow.claimed(account),
                token.balanceOf(account)
            ];
        }
        totals = [
            escrow.totalAvailable(),
            escrow.totalHeld(),
            escrow.totalPending(),
            escrow.totalStaked(),
            escrow.slashPool(),
            escrow.creditPool(),
            escrow.claimedTotal(),
            escrow.totalLiabilities(),
            token.balanceOf(address(escrow))
        ];
    }
}
